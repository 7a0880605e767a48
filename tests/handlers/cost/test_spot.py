"""An allocation on a spot node and another: each slot at the price of its capacity, everywhere."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.budgets import BudgetSet, BudgetSpec
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from services.cost import store, store_budgets
from services.cost.api import read_api
from services.cost.core.prices import Price, PriceBook
from services.cost.corrections import Corrections
from services.cost.handlers import handlers
from services.cost.pools import Sharing, report
from services.cost.spent import spent
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DOLLAR = 1_000_000
SPOT = Price("spot", "gpu", NOON - timedelta(days=30), DOLLAR, is_spot=True)
BOOK = PriceBook((Price("all", "gpu", NOON - timedelta(days=30), 4 * DOLLAR), SPOT))
JOB = job_id_for("vision", "one")
HELD: dict[str, Any] = {
    "job_id": JOB,
    "run_id": run_id_for(JOB, 1),
    "attempt": 1,
    "fence": 1,
    "allocation_id": allocation_id_for(JOB, 1),
    "tenant_id": "vision",
    "pool": "default",
    "device_type": "gpu",
    "slots": (
        {"node_id": "a", "slot": 0},
        {"node_id": "s", "slot": 0},
        {"node_id": "s", "slot": 1},
    ),
    "granted_at": NOON,
    "spot_nodes": ("s",),
}
RELEASED = AllocationReleased(**HELD, paid_ends_at=NOON + 2 * HOUR, released_at=NOON + 2 * HOUR)
PAID = 2 * (4 + 2 * 1) * DOLLAR  # two hours of a slot for 4 and two for 1


def at(payload: Payload, moment: datetime) -> Event[Any]:
    event = make_event(payload, tenant_id="vision")
    return Event(event.event_id, event.source, moment, event.tenant_id, event.payload)


def node(node_id: str, is_spot: bool | None) -> Event[Any]:
    facts = {"node_id": node_id, "pool": "default", "device_type": "gpu", "num_slots": 2}
    return at(NodeRegistered(**facts, is_spot=is_spot), NOON)


async def deliver(db: Database, *events: Event[Any], book: PriceBook = BOOK) -> None:
    await handle(db, handlers(book), *events)


async def charges(db: Database) -> list[tuple[str, bool, int, int]]:
    async with db.connection() as connection:
        rows = await connection.fetch(
            "select price_id, is_spot, num_slots, amount_micro_usd from charges"
            " order by is_spot, correction, amount_micro_usd"
        )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("is_shared", [False, True])
async def test_charges_and_the_day_of_the_pool_agree(
    database: OpenDatabase, is_shared: bool
) -> None:
    db = await database("cost")
    await deliver(db, node("a", None), node("s", True), at(AllocationGranted(**HELD), NOON))
    await deliver(db, at(RELEASED, NOON + 2 * HOUR))
    assert await charges(db) == [
        ("all", False, 1, 8 * DOLLAR),
        ("spot", True, 2, 4 * DOLLAR),
    ]
    if is_shared:
        platform: Any = SimpleNamespace(database=db)
        assert await Sharing(BOOK).share(platform, timedelta()) == 1
    async with db.connection() as connection:
        found = await report(connection, BOOK, NOON.date(), NOON.date(), NOON + 4 * HOUR)
    of_nodes = 4 * (2 * 4 + 2 * 1) * DOLLAR  # four hours of two slots each
    assert sum(row.micro_usd for row in found) == of_nodes
    assert sum(row.micro_usd for row in found if row.kind == "idle") == of_nodes - PAID
    assert sum(row.micro_usd for row in found if row.tenant_id == "vision") == PAID


def in_lines(lines: list[Any], name: str) -> dict[tuple[str, str | None], int]:
    """The sums by kind and capacity."""
    sums: Counter[tuple[str, str | None]] = Counter()
    for line in lines:
        sums[line["kind"], line["capacity"]] += line[name]
    return dict(sums)


@pytest.mark.parametrize("when", ["not shared out", "shared out"])
async def test_a_report_tells_spot_slots_apart(database: OpenDatabase, when: str) -> None:
    db = await database("cost")
    await deliver(db, node("a", None), node("s", True), at(AllocationGranted(**HELD), NOON))
    await deliver(db, at(RELEASED, NOON + 2 * HOUR))
    await deliver(db, at(NodeRemoved(node_id="s", reason="gone"), NOON + HOUR))
    platform: Any = SimpleNamespace(database=db)
    if when != "not shared out":
        assert await Sharing(BOOK).share(platform, timedelta()) == 1
    transport = httpx.ASGITransport(read_api(platform, BOOK))
    days = {"first": NOON.date().isoformat(), "last": NOON.date().isoformat()}
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        answer = await client.get("/chargeback/vision", params=days)
    *lines, _ = map(json.loads, answer.text.splitlines())
    # A node on demand until midnight, and a spot node until its two slots were released.
    assert sum(line["micro_usd"] for line in lines) == (2 * 12 * 4 + 2 * 2 * 1) * DOLLAR
    hours = {
        ("starting", "on_demand"): 2,
        ("starting", "spot"): 4,
        ("idle", "on_demand"): 2 * 12 - 2,
    }
    times = {key: number * 3_600_000_000 for key, number in hours.items()}
    assert in_lines(lines, "slot_microseconds") == times
    price = {"on_demand": 4 * DOLLAR, "spot": DOLLAR}
    money = {key: number * price[key[1]] for key, number in hours.items()}
    assert in_lines(lines, "micro_usd") == money


async def test_what_accrues_is_the_same_for_budgets_and_reports(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, node("a", False), node("s", True), at(AllocationGranted(**HELD), NOON))
    limit = BudgetSpec(limit_micro_usd=10**15, period="total")
    await deliver(db, at(BudgetSet(tenant_id="vision", name="all", spec=limit), NOON))
    async with db.connection() as connection, store.one_moment(connection):
        now = await store.now(connection)
        rows = await store_budgets.budgets(connection)
        held = await store_budgets.open_usages(connection, ["vision"])
        (amount,) = await spent(connection, rows, held, BOOK, now)
        slots = await store.held_slots(connection)
    longest = max(each.usage.ends_at for each in held)
    seconds = (longest - NOON).total_seconds()
    assert amount.micro_usd == pytest.approx(seconds * 6 * DOLLAR / 3600, rel=1e-6)
    assert {(each.is_spot, each.num_slots) for each in slots} == {(False, 1), (True, 2)}


async def test_spot_use_without_a_price_is_charged_once_there_is_one(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    only_spot = PriceBook((SPOT,))
    await deliver(db, at(RELEASED, NOON), book=only_spot)
    assert await charges(db) == [("unpriced", False, 1, 0), ("spot", True, 2, 4 * DOLLAR)]
    platform: Any = SimpleNamespace(database=db)
    assert await Corrections(BOOK).reprice(platform) == 1
    assert sum(amount for _, _, _, amount in await charges(db)) == PAID
    async with db.connection() as connection:
        charged = await store.charged_to(connection, "job", JOB)
    assert charged.charged_micro_usd == PAID


@pytest.mark.parametrize(("others", "hourly"), [((), DOLLAR), ((False,), 4 * DOLLAR)])
async def test_an_estimate_is_at_the_price_of_spot_where_a_pool_has_nothing_else(
    database: OpenDatabase, others: tuple[bool, ...], hourly: int
) -> None:
    db = await database("cost")
    await deliver(db, node("s", True), *(node("a", is_spot) for is_spot in others))
    platform: Any = SimpleNamespace(
        database=db, clock=SimpleNamespace(now=lambda: NOON), settings=None
    )
    transport = httpx.ASGITransport(read_api(platform, BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        answer = await client.get("/estimate?device_type=gpu&devices=3&seconds=3600")
    assert answer.json()["estimated_micro_usd"] == 3 * hourly
