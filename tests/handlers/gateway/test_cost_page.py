"""The page of costs: a month's report by day and owner, and the budgets."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from services.gateway.core import bars, cost_page
from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.test_budgets import changed, reached

HOUR = 3_600_000_000
LATER = datetime(2026, 3, 1, tzinfo=UTC)
NOBODY = dict.fromkeys(("tenant_id", "project", "study_id", "job_id", "job_name"))


def report(month: date = date(2026, 2, 1)) -> list[dict[str, Any]]:
    """Two projects and an idle slot on two days, and a gigabyte."""
    lines: list[dict[str, Any]] = []
    for number in (0, 2):
        line = {
            **NOBODY,
            "day": (month + timedelta(days=number)).isoformat(),
            "pool": "default",
            "device_type": "gpu",
            "kind": "productive",
            "tenant_id": "default",
            "project": "vision",
            "slot_microseconds": 10 * HOUR,
            "byte_microseconds": 0,
            "micro_usd": 25_000_000,
        }
        lost = {**line, "kind": "lost", "project": None, "slot_microseconds": 5 * HOUR}
        idle = {**line, **NOBODY, "kind": "idle", "micro_usd": 1_250_000}
        stored = {**line, "kind": "storage", "pool": None, "slot_microseconds": 0, "micro_usd": 7}
        lines += [line, lost, idle, stored]
    return [*lines, {"is_complete": True}]


Forward = Callable[[str, str, Any], Any]


def answers(budgets: list[dict[str, Any]], asked: list[Any]) -> Forward:
    async def forward(part: str, path: str, parameters: Any) -> Any:
        asked.append((path, parameters))
        return report() if path.startswith("/chargeback") else {"budgets": budgets}

    return forward


async def test_a_month_by_owner_with_budgets(model: Model) -> None:
    asked: list[Any] = []
    state = {"name": "vision", "reached_percent": 80, "spent_micro_usd": 450_000_000}
    await model.tell(changed(), reached(80))
    async with serving(model, forward=answers([state], asked)) as server:
        answer = await server.client.get("/costs?month=2026-02")
    days = {"first": "2026-02-01", "last": "2026-02-28", "by": "project"}
    assert asked[0] == ("/chargeback/default", days)
    text = " ".join(answer.text.split())
    assert "Costs of February 2026" in text
    assert '<a href="/?project=vision">vision</a>' in text
    assert "no project" in text
    assert "$102.50" in text
    assert text.count("<rect") == 6
    assert "Feb 3: 10.0 slot hours productive" in text
    assert "slots, on average of each day (UTC)" in text
    assert [f">{mark}</text>" in text for mark in ("0.5", "Feb 1", "Feb 25")] == [True] * 3
    assert "90 %" in text
    assert "$450.00 of $500.00" in text


async def test_without_the_cost_service_it_says_so(model: Model) -> None:
    await model.tell(changed())
    async with serving(model) as server:
        text = (await server.client.get("/costs")).text
    assert "The cost service does not answer" in text
    assert "what is spent is not known" in text


@pytest.mark.parametrize("query", ["month=2026-13", "month=x", "by=day"])
async def test_a_wrong_address_is_refused(model: Model, query: str) -> None:
    async with serving(model) as server:
        assert (await server.client.get(f"/costs?{query}")).status_code == 422


def test_a_bar_is_as_high_as_its_time() -> None:
    costs = cost_page.Costs()
    for line in report()[:-1]:
        costs.add(line, "project")
    drawn = cost_page.picture(costs, date(2026, 2, 1), date(2026, 2, 28), LATER)
    assert drawn.width == 28 * 20 - 4
    of_third = [piece for piece in drawn.pieces if piece.x == 40]
    assert [piece.style for piece in of_third] == ["use-productive", "use-lost", "use-idle"]
    assert sum(piece.height for piece in of_third) == pytest.approx(bars.HEIGHT)
    assert of_third[-1].y == pytest.approx(0)
    assert of_third[0].y + of_third[0].height == pytest.approx(bars.HEIGHT)


def test_the_most_expensive_owners_come_first_and_the_others_are_counted() -> None:
    costs = cost_page.Costs()
    (line, *_) = report()
    for number in range(cost_page.MAX_ROWS + 3):
        costs.add({**line, "project": f"p{number}", "micro_usd": number}, "project")
    found, num_others = cost_page.owners(costs)
    assert (found[0].name, num_others) == ("p202", 3)


def test_months_begin_and_end() -> None:
    assert cost_page.month_of(None, date(2026, 12, 31)) == date(2026, 12, 1)
    assert cost_page.last_of(date(2026, 12, 1)) == date(2026, 12, 31)
    assert cost_page.last_of(cost_page.month_of("2028-02", date(2026, 1, 1))) == date(2028, 2, 29)
