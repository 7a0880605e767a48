"""The chargeback report by REST: lines of JSON, CSV, and the columns of FOCUS."""

import csv
import io
import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from services.gateway import backends
from services.gateway.backends import Backends, PartRefused, PartUnavailable
from services.gateway.core.chargeback import COLUMNS, FOCUS_COLUMNS
from services.gateway.rest.chargeback import ReportBrokeOff
from tests.handlers.gateway.model import Model, serving

MINE = {
    "day": "2026-01-31",
    "pool": "default",
    "device_type": "gpu",
    "kind": "lost",
    "capacity": "spot",
    "tenant_id": "default",
    "project": "vision",
    "study_id": None,
    "job_id": "job_a",
    "job_name": "-2+3",
    "slot_microseconds": 1_000_000,
    "byte_microseconds": 0,
    "micro_usd": 12_345_678,
}
NOBODY = dict.fromkeys(("tenant_id", "project", "study_id", "job_id", "job_name"))
IDLE = {
    **MINE,
    **NOBODY,
    "kind": "idle",
    "capacity": None,
    "slot_microseconds": 3_600_000_000,
    "micro_usd": -1,
}
STORED = {
    **MINE,
    "kind": "storage",
    "pool": None,
    "device_type": None,
    "slot_microseconds": 0,
    "byte_microseconds": 15 * 10**9 * 86_400 * 10**6,
    "micro_usd": 500_000,
}
END = {"is_complete": True}
REPORT = [MINE, IDLE, END]


async def ask(model: Model, lines: list[Any], query: str) -> tuple[httpx.Response, Any]:
    asked = []

    async def forward(part: str, path: str, parameters: Any) -> Any:
        asked.append((path, parameters))
        return lines

    async with serving(model, forward=forward) as server:
        answer = await server.client.get(f"/v1/cost/report{query}")
    return answer, asked[-1] if asked else None


async def test_a_month_as_lines_of_json(model: Model) -> None:
    answer, asked = await ask(model, REPORT, "?month=2028-02&by=project")
    days = {"first": "2028-02-01", "last": "2028-02-29", "by": "project"}
    assert asked == ("/chargeback/default", days)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in answer.text.splitlines()] == REPORT


async def test_csv_has_exact_money_and_no_formulas(model: Model) -> None:
    answer, _ = await ask(model, REPORT, "?format=csv&first=2026-01-31&last=2026-01-31")
    mine, idle = csv.DictReader(io.StringIO(answer.text))
    assert tuple(mine) == COLUMNS
    assert (mine["cost_usd"], idle["cost_usd"]) == ("12.345678", "-0.000001")
    assert (mine["slot_hours"], idle["slot_hours"]) == ("0.000277778", "1.000000000")
    assert (mine["gb_months"], idle["gb_months"]) == ("0.000000000", "0.000000000")
    assert mine["job_name"] == "'-2+3"
    assert (idle["tenant_id"], idle["kind"]) == ("", "idle")
    assert (mine["capacity"], idle["capacity"]) == ("spot", "")


async def test_focus_has_its_columns(model: Model) -> None:
    answer, _ = await ask(model, REPORT, "?format=focus&month=2026-01")
    assert "focus" not in answer.headers["content-type"]
    mine, idle = csv.DictReader(io.StringIO(answer.text))
    assert tuple(mine) == FOCUS_COLUMNS
    assert Decimal(mine["BilledCost"]) + Decimal(idle["BilledCost"]) == Decimal("12.345677")
    assert mine["EffectiveCost"] == mine["ListCost"] == mine["BilledCost"]
    assert (mine["ChargePeriodStart"], mine["ChargePeriodEnd"]) == (
        "2026-01-31T00:00:00Z",
        "2026-02-01T00:00:00Z",
    )
    assert (mine["BillingPeriodStart"], mine["BillingPeriodEnd"]) == (
        "2026-01-01T00:00:00Z",
        "2026-02-01T00:00:00Z",
    )
    assert (mine["ResourceId"], mine["SubAccountId"]) == ("job_a", "default")
    assert (mine["PricingCategory"], idle["PricingCategory"]) == ("Dynamic", "Standard")
    assert json.loads(mine["Tags"])["project"] == "vision"
    stored_answer, _ = await ask(model, [STORED, END], "?format=focus")
    (stored,) = csv.DictReader(io.StringIO(stored_answer.text))
    assert (stored["ServiceCategory"], stored["PricingUnit"]) == ("Storage", "GB-Months")
    assert (stored["PricingQuantity"], stored["BilledCost"]) == ("0.500000000", "0.500000")
    assert (idle["ResourceId"], idle["SubAccountId"], idle["ResourceType"]) == ("", "", "")


@pytest.mark.parametrize("query", ["?month=2026-13", "?month=2026-01&first=2026-01-02", "?by=day"])
async def test_what_is_wrong_is_named(model: Model, query: str) -> None:
    answer, _ = await ask(model, REPORT, query)
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert error["field"] in query
    assert "match ^" not in error["fix"]


async def test_without_the_cost_service_it_is_refused(model: Model) -> None:
    async with serving(model) as server:
        answer = await server.client.get("/v1/cost/report")
    assert (answer.status_code, answer.json()["code"]) == (503, "part_unavailable")


async def test_half_a_report_does_not_look_whole(model: Model) -> None:
    long = [MINE] * 500
    with pytest.raises(ReportBrokeOff):
        await ask(model, long, "?month=2026-01")


def answering(status: int, content: bytes) -> Backends:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=content))
    return Backends({"cost": "http://cost"}, "token", transport)


async def read(of: Backends) -> list[Any]:
    return [line async for line in of.lines("cost", "/chargeback/default", {})]


async def test_long_answers_are_read_line_by_line() -> None:
    assert backends.MAX_BYTES < 100_000 * 100  # there is no limit for all lines together
    line = json.dumps({"text": "x" * 90}).encode() + b"\n"
    assert len(await read(answering(200, line * 100_000))) == 100_000
    with pytest.raises(PartUnavailable):
        await read(answering(500, b""))
    with pytest.raises(PartUnavailable):
        await read(answering(200, line + b'{"half'))
    with pytest.raises(PartRefused, match="too many"):
        await read(answering(429, b'{"detail": "too many"}'))
