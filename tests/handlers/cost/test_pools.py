"""Who had what of a pool: from events of nodes, runs, checkpoints and allocations."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import CheckpointCommitted
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import (
    allocation_id_for,
    checkpoint_id_for,
    job_id_for,
    run_id_for,
)
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.runs import RunFailed, RunStarted
from services.cost import chargeback, pools, store, store_pools
from services.cost.chargeback import Ask, By
from services.cost.core.fleet import By as FleetBy
from services.cost.core.pools import Row
from services.cost.core.prices import Price, PriceBook
from services.cost.core.steps import Step, days
from services.cost.corrections import Corrections
from services.cost.fleet import Ask as FleetAsk
from services.cost.fleet import fleet
from services.cost.handlers import handlers
from services.cost.pools import SHARE_AFTER, Sharing, report
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BOOK = PriceBook((Price("p", "gpu", NOON - timedelta(days=30), 3_600_000_000),))
JOB = job_id_for("vision", "one")
FACTS = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}
HELD = {
    **FACTS,
    "allocation_id": allocation_id_for(JOB, 1),
    "tenant_id": "vision",
    "pool": "default",
    "device_type": "gpu",
    "slots": ({"node_id": "a", "slot": 0},),
    "granted_at": NOON,
}
NODE = NodeRegistered(node_id="a", pool="default", device_type="gpu", num_slots=2)
RELEASED = AllocationReleased(**HELD, paid_ends_at=NOON + 3 * HOUR, released_at=NOON + 4 * HOUR)
FAILED = RunFailed(**FACTS, exit_code=1, last_log="", ended_at=NOON + 3 * HOUR)
STARTED = RunStarted(**FACTS, started_at=NOON + HOUR)


def committed() -> CheckpointCommitted:
    key = f"checkpoints/vision/{JOB}/step-1/manifest.json"
    return CheckpointCommitted(
        **FACTS,
        checkpoint_id=checkpoint_id_for(key),
        tenant_id="vision",
        step=1,
        manifest_key=key,
        size_bytes=1,
        num_shards=1,
        epoch=0,
        metrics={},
        is_latest=True,
        is_best=False,
        blocked_seconds=600.0,
    )


def at(payload: Payload, moment: datetime) -> Event[Any]:
    event = make_event(payload, tenant_id="vision")
    return Event(event.event_id, event.source, moment, event.tenant_id, event.payload)


async def deliver(db: Database, *events: Event[Any]) -> None:
    await handle(db, handlers(BOOK), *events)


async def shares(db: Database, until: datetime = NOON + 12 * HOUR) -> dict[tuple[str, str], float]:
    """Hours by kind and tenant on the day of NOON; what they cost follows from a price of $3,600
    an hour."""
    async with db.connection() as connection:
        found = await report(connection, BOOK, NOON.date(), NOON.date(), until)
    for row in found:
        assert row.micro_usd == row.slot_microseconds
    return {(row.kind, row.tenant_id): hours(row) for row in found}


def hours(row: Row) -> float:
    return row.slot_microseconds / 3_600_000_000


async def share(db: Database) -> int:
    platform: Any = SimpleNamespace(database=db)
    return await Sharing(BOOK).share(platform, timedelta())


@pytest.mark.parametrize("is_shared", [False, True])
async def test_every_hour_of_a_pool_is_in_one_row(database: OpenDatabase, is_shared: bool) -> None:
    db = await database("cost")
    await deliver(
        db,
        at(NODE, NOON),
        at(AllocationGranted(**HELD), NOON),
        at(STARTED, NOON + HOUR),
        at(committed(), NOON + 2 * HOUR),
        at(FAILED, NOON + 3 * HOUR),
        at(RELEASED, NOON + 4 * HOUR),
    )
    if is_shared:
        assert await share(db) == 1
        assert await share(db) == 0
    assert await shares(db) == {
        ("starting", "vision"): 1.0,
        ("productive", "vision"): pytest.approx(5 / 6),
        ("checkpointing", "vision"): pytest.approx(1 / 6),
        ("lost", "vision"): 1.0,
        ("platform", ""): 1.0,
        ("idle", ""): 20.0,
    }


@pytest.mark.parametrize("is_shared", [False, True])
async def test_no_idle_part_is_negative_after_a_price_was_lowered_for_the_past(
    database: OpenDatabase, is_shared: bool
) -> None:
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(RELEASED, NOON + 5 * HOUR))
    if is_shared:
        await share(db)
    cheaper = PriceBook((replace(BOOK.prices[0], micro_usd_per_slot_hour=360_000_000),))
    day, until = NOON.date(), NOON + 4 * HOUR
    ask = Ask("vision", day, day, By.JOB)
    view = FleetAsk("vision", days(day, day, Step.HOUR), FleetBy.USE)
    async with db.connection() as connection, store.one_moment(connection):
        rows = await report(connection, cheaper, day, day, until)
        lines = [each async for each in chargeback.lines(connection, cheaper, ask, until)]
        found = (await fleet(connection, cheaper, view, until)).series
    assert [row.micro_usd for row in rows if row.kind == "idle"] == [0]
    assert [amount.micro_usd for line, amount in lines if line.kind == "idle"] == [0]
    (idle,) = (points for of, points in found if of.kind == "idle")
    assert {amount.micro_usd for amount in idle.values()} == {0}


async def test_a_checkpoint_that_is_known_late_still_counts(database: OpenDatabase) -> None:
    """It is verified on another topic, maybe after the release."""
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(STARTED, NOON), at(FAILED, NOON), at(RELEASED, NOON))
    assert (await shares(db))["lost", "vision"] == 2.0
    await deliver(db, at(committed(), NOON + 3 * HOUR))
    assert ("lost", "vision") not in await shares(db)


async def test_what_is_held_now_counts_up_to_now(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(AllocationGranted(**HELD), NOON), at(STARTED, NOON))
    assert await shares(db, NOON + 5 * HOUR) == {
        ("starting", "vision"): 1.0,
        ("productive", "vision"): 4.0,
        ("idle", ""): 5.0,
    }


async def test_a_node_offers_from_its_registration_to_its_removal(database: OpenDatabase) -> None:
    db = await database("cost")
    larger = NODE.model_copy(update={"num_slots": 8})
    await deliver(
        db,
        at(NODE, NOON),
        at(NODE, NOON + HOUR),
        at(larger, NOON + 2 * HOUR),
        at(NodeRemoved(node_id="a", reason="gone"), NOON + 3 * HOUR),
        at(NODE, NOON + 11 * HOUR),
    )
    assert await shares(db) == {("idle", ""): 2 * 2.0 + 8.0 + 2.0}


async def test_shared_out_twice_at_once_it_counts_once(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, at(NODE, NOON), at(STARTED, NOON), at(RELEASED, NOON))
    before = await shares(db)
    async with db.transaction() as first:
        (held,) = await store_pools.to_share(first.connection, timedelta(), 10)
        assert held.allocation_id == HELD["allocation_id"]
        async with db.transaction() as second:
            await second.connection.execute("set local lock_timeout = '100ms'")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await store_pools.to_share(second.connection, timedelta(), 10)
    assert await share(db) == 1
    assert await shares(db) == before


async def test_what_a_removed_node_held_is_priced_with_its_charge(database: OpenDatabase) -> None:
    """What it held beyond its offer is part of the pool's cost, at the price that came later."""
    db = await database("cost")
    gone = NodeRemoved(node_id="a", reason="gone")
    events = (at(NODE, NOON), at(gone, NOON + HOUR), at(STARTED, NOON), at(RELEASED, NOON))
    await handle(db, handlers(PriceBook(())), *events)
    assert await share(db) == 1
    platform: Any = SimpleNamespace(database=db)
    assert await Corrections(BOOK).reprice(platform) == 1
    assert (await shares(db))["idle", ""] == 1.0


@pytest.mark.parametrize("is_shared", [False, True])
async def test_usage_that_is_priced_later_costs_its_share(
    database: OpenDatabase, is_shared: bool
) -> None:
    db = await database("cost")
    unpriced = handlers(PriceBook(()))
    events = (at(NODE, NOON), at(STARTED, NOON), at(committed(), NOON + 2 * HOUR), at(FAILED, NOON))
    await handle(db, unpriced, *events, at(RELEASED, NOON))
    if is_shared:
        assert await share(db) == 1
    platform: Any = SimpleNamespace(database=db)
    assert await Corrections(BOOK).reprice(platform) == 1
    assert (await shares(db))["productive", "vision"] == pytest.approx(5 / 6)
    if not is_shared:
        assert await share(db) == 1
    assert (await shares(db))["lost", "vision"] == 1.0
    async with db.connection() as connection:
        cost = await connection.fetchval("select sum(micro_usd) from job_shares")
    assert cost == 4 * 3_600_000_000


async def test_what_a_removed_node_still_held_takes_no_idle_time_of_others(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    other = NODE.model_copy(update={"node_id": "b", "num_slots": 1})
    gone = NodeRemoved(node_id="a", reason="gone")
    await deliver(db, at(NODE, NOON), at(other, NOON), at(STARTED, NOON))
    await deliver(db, at(gone, NOON + HOUR), at(AllocationGranted(**HELD), NOON))
    held = {("starting", "vision"): 1.0, ("productive", "vision"): 3.0}
    # Of the first hour a slot of each node is idle, and then the only one of the other.
    assert await shares(db, NOON + 4 * HOUR) == {**held, ("idle", ""): 1.0 + 4.0}
    await deliver(db, at(RELEASED, NOON + 4 * HOUR))
    assert await share(db) == 1
    assert (await shares(db, NOON + 4 * HOUR))["idle", ""] == 5.0


@pytest.mark.parametrize("is_shared", [False, True])
async def test_two_jobs_on_a_node_that_loses_a_slot_take_no_idle_time_of_others(
    database: OpenDatabase, is_shared: bool
) -> None:
    db = await database("cost")
    other = NODE.model_copy(update={"node_id": "b", "num_slots": 1})
    fewer = NODE.model_copy(update={"num_slots": 1})
    await deliver(db, at(NODE, NOON), at(other, NOON), at(fewer, NOON + HOUR))
    for number in range(2):
        job_id = job_id_for("vision", str(number))
        of_job = {
            "job_id": job_id,
            "run_id": run_id_for(job_id, 1),
            "allocation_id": allocation_id_for(job_id, 1),
            "slots": ({"node_id": "a", "slot": number},),
        }
        facts = RELEASED.model_dump() | of_job
        await deliver(db, at(AllocationReleased.model_validate(facts), NOON + 4 * HOUR))
    if is_shared:
        assert await share(db) == 2
    # The slot of the other node is idle, and when both jobs have ended one of each node.
    assert (await shares(db))["idle", ""] == 4.0 + 2 * 8.0


async def test_what_is_not_shared_out_is_read_in_steps(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(
            """
            insert into allocations (allocation_id, tenant_id, job_id, run_id, pool, device_type,
                num_slots, slot_numbers, num_spot_slots, spot_slots, granted_at)
            select n::text, 'vision', 'job', 'run', 'default', 'gpu', 1, '{}', 0, '{}', $1
            from generate_series(1, 20) as n
            """,
            NOON,
        )
    monkeypatch.setattr(pools, "BATCH", 7)
    assert await shares(db, NOON + HOUR) == {("starting", "vision"): 20.0}


@pytest.mark.parametrize("claimed", [1e12, 1e308, float("inf")])
async def test_a_checkpoint_that_claims_to_have_blocked_for_ages_stops_nothing(
    database: OpenDatabase, claimed: float
) -> None:
    """What a save took stands in its manifest, which the pod writes."""
    db = await database("cost")
    saved = [committed().model_copy(update={"blocked_seconds": claimed}) for _ in range(2)]
    await deliver(db, at(NODE, NOON), at(STARTED, NOON), *(at(one, NOON + HOUR) for one in saved))
    await deliver(db, at(FAILED, NOON + 3 * HOUR), at(RELEASED, NOON + 4 * HOUR))
    assert await share(db) == 1
    assert (await shares(db))["starting", "vision"] == 1.0
    assert ("productive", "vision") not in await shares(db)


async def test_what_is_read_after_an_outage_is_not_shared_out_at_once(
    database: OpenDatabase,
) -> None:
    """Events of nodes and checkpoints are on other topics: they may be read a little later."""
    db = await database("cost")
    platform: Any = SimpleNamespace(database=db)
    await deliver(db, at(STARTED, NOON), at(FAILED, NOON), at(RELEASED, NOON))
    assert await Sharing(BOOK).share(platform, SHARE_AFTER) == 0
    await deliver(db, at(NODE, NOON), at(committed(), NOON + 3 * HOUR))
    assert await share(db) == 1
    found = await shares(db)
    assert ("lost", "vision") not in found
    assert sum(found.values()) == 24.0
