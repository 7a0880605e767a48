"""Slots over time: lines in the order of their bars."""

from datetime import date, timedelta
from typing import Any

import pytest

from services.gateway.core.bars import Line
from services.gateway.core.fleet_page import HOURS_SINCE, By, has_hours, lines


def of(kind: str, *times: int, holder: str | None = None, name: str | None = None) -> Any:
    return {"kind": kind, "holder": holder, "name": name} | {
        "slot_microseconds": times,
        "micro_usd": (2,) * len(times),
    }


def test_uses_of_all_pools_are_added_and_stand_in_their_order() -> None:
    found = lines([of("idle", 1, 2), of("productive", 5, 0), of("idle", 10, 20)], "use")
    assert found == [
        Line("productive", "use-productive", [5, 0], 4),
        Line("idle", "use-idle", [11, 22], 8),
    ]
    assert found[1].total == 33


def test_the_largest_holder_is_lowest_and_others_platform_and_idle_are_above() -> None:
    series = [
        of("idle", 99),
        of("platform", 1),
        of("others", 50),
        of("held", 3, holder="b"),
        of("held", 3, holder="a"),
        of("held", 7, holder="c", name="digits"),
        of("held", 1),
    ]
    assert [(line.name, line.style) for line in lines(series, "job")] == [
        ("digits", "holder-1"),
        ("a", "holder-2"),
        ("b", "holder-3"),
        ("no job", "holder-4"),
        ("others", "use-others"),
        ("platform", "use-platform"),
        ("idle", "use-idle"),
    ]


@pytest.mark.parametrize(
    ("by", "holder", "address"),
    [
        ("job", "job_a", "/jobs/job_a"),
        ("project", "a/b", "/?project=a%2Fb"),
        ("tenant", "team", ""),
        ("job", None, ""),
    ],
)
def test_a_job_and_a_project_have_a_page(by: By, holder: str | None, address: str) -> None:
    [line] = lines([of("held", 1, holder=holder)], by)
    assert line.address == address


def test_hours_are_known_of_the_last_days_alone() -> None:
    today = date(2026, 3, 1)
    assert has_hours(today - HOURS_SINCE, today)
    assert not has_hours(today - HOURS_SINCE - timedelta(days=1), today)
