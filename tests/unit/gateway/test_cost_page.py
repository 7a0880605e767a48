"""The page of costs: who had what, day by day."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from services.gateway.core.cost_page import (
    MAX_ROWS,
    Costs,
    Owner,
    last_of,
    month_of,
    owners,
    picture,
)

HOUR = 3_600_000_000


def line(**changes: Any) -> dict[str, Any]:
    of_job = {"tenant_id": "team", "project": "p", "study_id": None, "job_id": "job_a"}
    amounts = {"slot_microseconds": HOUR, "micro_usd": 5}
    return {"kind": "productive", "day": "2026-01-02", **of_job, **amounts, **changes}


@pytest.mark.parametrize(
    ("changes", "by", "owner"),
    [
        ({}, "project", "p"),
        ({"project": None}, "project", None),
        ({}, "study", None),
        ({}, "job", "job_a"),
        ({"tenant_id": None}, "project", ""),
        ({"tenant_id": "others"}, "project", "other tenants"),
    ],
)
def test_a_line_is_of_its_project_study_or_job(
    changes: dict[str, Any], by: str, owner: str | None
) -> None:
    costs = Costs()
    costs.add(line(**changes), by)
    assert list(costs.owners) == [owner]


def test_costs_of_an_owner_and_of_a_kind_add_up_and_storage_has_no_slots() -> None:
    costs = Costs()
    for changes in ({}, {"project": "q"}, {"kind": "storage", "micro_usd": 1}, {"kind": "idle"}):
        costs.add(line(**changes), "project")
    assert (costs.of_kind("productive"), costs.of_kind("storage")) == (10, 1)
    assert dict(costs.days[date(2026, 1, 2)]) == {"productive": 2 * HOUR, "idle": HOUR}
    first = Owner("p", {"productive": 5, "storage": 1, "idle": 5}, 11)
    assert owners(costs) == ([first, Owner("q", {"productive": 5}, 5)], 0)


@pytest.mark.parametrize(("num", "num_more"), [(MAX_ROWS, 0), (MAX_ROWS + 1, 1)])
def test_the_most_expensive_owners_are_listed_and_the_rest_counted(num: int, num_more: int) -> None:
    costs = Costs()
    for number in range(num):
        costs.add(line(project=f"p{number}", micro_usd=number), "project")
    found, others = owners(costs)
    assert (len(found), others) == (MAX_ROWS, num_more)
    assert found[0].micro_usd == num - 1


def test_each_day_has_a_bar_also_one_without_costs() -> None:
    costs = Costs()
    costs.add(line(), "project")
    costs.add(line(kind="idle", slot_microseconds=3 * HOUR), "project")
    found = picture(costs, date(2026, 1, 1), date(2026, 1, 3), datetime(2026, 2, 1, tzinfo=UTC))
    assert found.width == 2 * 20 + 16
    assert [mark.text for mark in found.times] == ["Jan 1", "Jan 2", "Jan 3"]
    assert [(piece.style, piece.x, piece.label) for piece in found.pieces] == [
        ("use-productive", 20, "Jan 2: 1.0 slot hours productive"),
        ("use-idle", 20, "Jan 2: 3.0 slot hours idle"),
    ]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (None, date(2026, 2, 1), date(2026, 2, 28)),
        ("2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("2026-12", date(2026, 12, 1), date(2026, 12, 31)),
        ("2026-01", date(2026, 1, 1), date(2026, 1, 31)),
    ],
)
def test_a_month_is_the_given_one_or_that_of_today(
    text: str | None, first: date, last: date
) -> None:
    month = month_of(text, date(2026, 2, 17))
    assert (month, last_of(month)) == (first, last)
