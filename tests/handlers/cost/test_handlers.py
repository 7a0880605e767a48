"""Allocations in, charges out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased, SlotRef
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, charge_id_for, job_id_for, run_id_for
from services.cost import store
from services.cost.core.prices import Price, PriceBook
from services.cost.handlers import batch_handler, handlers
from services.runtime.processing import EventProcessor
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, make_event, make_record

START = datetime(2026, 2, 1, tzinfo=UTC)
JOB = job_id_for("default", "charged")
BOOK = PriceBook((Price("cpu-2026", "cpu", datetime(2026, 1, 1, tzinfo=UTC), 36_000_000),))


def granted() -> AllocationGranted:
    return AllocationGranted(**_facts())


def released(after: timedelta, paid: timedelta | None = None) -> AllocationReleased:
    paid_ends_at = START + (after if paid is None else paid)
    return AllocationReleased(**_facts(), released_at=START + after, paid_ends_at=paid_ends_at)


def _facts() -> dict[str, Any]:
    return {
        "job_id": JOB,
        "run_id": run_id_for(JOB, 1),
        "attempt": 1,
        "fence": 1,
        "allocation_id": allocation_id_for(JOB, 1),
        "tenant_id": "default",
        "pool": "default",
        "device_type": "cpu",
        "slots": (SlotRef(node_id="node-a", slot=0), SlotRef(node_id="node-b", slot=0)),
        "granted_at": START,
    }


async def test_a_release_is_charged(database: OpenDatabase) -> None:
    db = await database("cost")
    out = await handle(
        db, handlers(BOOK), make_event(granted()), make_event(released(timedelta(seconds=1)))
    )
    (charge,) = out
    assert isinstance(charge, ChargeRecorded)
    assert charge.amount_micro_usd == 20_000
    assert (charge.starts_at, charge.ends_at) == (START, START + timedelta(seconds=1))
    assert charge.price_micro_usd_per_slot_hour == 36_000_000


async def test_the_owner_pays_until_the_pods_ended_and_the_platform_the_rest(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    (charge,) = await handle(
        db, handlers(BOOK), make_event(released(timedelta(hours=1), paid=timedelta(minutes=15)))
    )
    assert isinstance(charge, ChargeRecorded)
    assert (charge.starts_at, charge.ends_at) == (START, START + timedelta(minutes=15))
    assert charge.amount_micro_usd == 18_000_000
    assert charge.platform_ends_at == START + timedelta(hours=1)
    assert charge.platform_micro_usd == 54_000_000


async def test_each_price_period_has_its_own_part_of_the_platform_s_cost(
    database: OpenDatabase,
) -> None:
    dearer = Price("cpu-dear", "cpu", START + timedelta(minutes=30), 72_000_000)
    book = PriceBook((*BOOK.prices, dearer))
    db = await database("cost")
    out = await handle(
        db, handlers(book), make_event(released(timedelta(hours=1), paid=timedelta(minutes=15)))
    )
    charges = [item for item in out if isinstance(item, ChargeRecorded)]
    assert [(it.price_id, it.amount_micro_usd, it.platform_micro_usd) for it in charges] == [
        ("cpu-2026", 18_000_000, 18_000_000),
        ("cpu-dear", 0, 72_000_000),
    ]
    assert charges[1].starts_at == charges[1].ends_at == START + timedelta(minutes=30)


async def test_slots_of_pods_that_never_ran_cost_the_platform_only(database: OpenDatabase) -> None:
    db = await database("cost")
    (charge,) = await handle(
        db, handlers(BOOK), make_event(released(timedelta(seconds=1), paid=timedelta(0)))
    )
    assert isinstance(charge, ChargeRecorded)
    assert (charge.amount_micro_usd, charge.platform_micro_usd) == (0, 20_000)


async def test_a_release_delivered_again_after_its_inbox_row_was_pruned_is_charged_once(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    release = released(timedelta(seconds=1))
    assert len(await handle(db, handlers(BOOK), make_event(release))) == 1
    dearer = PriceBook((Price("cpu-2025", "cpu", datetime(2025, 1, 1, tzinfo=UTC), 1),))
    assert await handle(db, handlers(dearer), make_event(release)) == []


async def test_a_release_that_comes_twice_is_charged_once(database: OpenDatabase) -> None:
    db = await database("cost")
    event = make_event(released(timedelta(seconds=1)), event_id="the-same")
    assert len(await handle(db, handlers(BOOK), event, event)) == 1


async def test_a_release_before_its_grant_is_charged_and_closed(database: OpenDatabase) -> None:
    db = await database("cost")
    out = await handle(
        db, handlers(BOOK), make_event(released(timedelta(seconds=1))), make_event(granted())
    )
    assert len(out) == 1
    async with db.connection() as connection:
        assert await connection.fetchval("select released_at from allocations") is not None


async def test_charges_are_numbered_without_a_gap(database: OpenDatabase) -> None:
    db = await database("cost")
    await handle(db, handlers(BOOK), make_event(released(timedelta(seconds=1))))
    assert [event.seq for event in await emitted(db)] == [1]


async def test_usage_without_a_price_is_charged_nothing_and_logged(database: OpenDatabase) -> None:
    db = await database("cost")
    (charge,) = await handle(
        db, handlers(PriceBook(())), make_event(released(timedelta(seconds=1)))
    )
    assert isinstance(charge, ChargeRecorded)
    assert (charge.price_id, charge.amount_micro_usd) == ("unpriced", 0)


async def test_the_database_refuses_to_change_a_charge(database: OpenDatabase) -> None:
    db = await database("cost")
    await handle(db, handlers(BOOK), make_event(released(timedelta(seconds=1))))
    async with db.connection() as connection:
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await connection.execute("update charges set amount_micro_usd = 0")
        with pytest.raises(asyncpg.RaiseError, match="append-only"):
            await connection.execute("delete from charges")


async def test_the_database_refuses_a_second_charge_for_the_same_slots_and_price(
    database: OpenDatabase,
) -> None:
    """Whatever id it comes under; what reverses it is another row, and may stand there once."""
    db = await database("cost")
    (charge,) = await handle(db, handlers(BOOK), make_event(released(timedelta(seconds=1))))
    assert isinstance(charge, ChargeRecorded)
    second = charge.model_copy(update={"charge_id": charge_id_for(charge.allocation_id, "other")})
    async with db.connection() as connection:
        with pytest.raises(asyncpg.UniqueViolationError, match="charges_once"):
            await store.insert_charges(connection, [second])
        reverse = (
            "insert into charges select $1, tenant_id, job_id, run_id, attempt, allocation_id, "
            "pool, device_type, num_slots, starts_at, ends_at, price_id, "
            "price_micro_usd_per_slot_hour, -amount_micro_usd, charge_id from charges"
        )
        await connection.execute(reverse, "reversal-1")
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute(f"{reverse} where reverses_charge_id is null", "reversal-2")


TABLES = (
    "select to_jsonb(allocations) - 'release_noted_at' from allocations order by allocation_id",
    "select * from charges order by charge_id",
    "select * from spend_by_day order by tenant_id, day",
    "select * from unpriced_use order by tenant_id, pool, device_type",
)


def mixed_events() -> list[Event[Any]]:
    """Grants and releases of several tenants, days and device types, some of them twice."""
    events = []
    for number in range(40):
        job_id = job_id_for("default", f"job {number % 30}")
        facts = _facts() | {
            "job_id": job_id,
            "run_id": run_id_for(job_id, 1),
            "allocation_id": allocation_id_for(job_id, 1),
            "tenant_id": f"tenant-{number % 3}",
            "device_type": "cpu" if number % 5 else "gpu",
            "granted_at": START + timedelta(hours=10 * (number % 30)),
        }
        end = facts["granted_at"] + timedelta(minutes=3)
        granted_one = AllocationGranted(**facts)
        released_one = AllocationReleased(
            **facts, released_at=end + timedelta(minutes=1), paid_ends_at=end
        )
        order = (released_one, granted_one) if number % 2 else (granted_one, released_one)
        events += [make_event(each, tenant_id=each.tenant_id) for each in order]
    return events


async def test_events_of_one_batch_have_the_effects_of_events_one_by_one(
    database: OpenDatabase,
) -> None:
    found = []
    for size in (1, 200):
        db = await database("cost")
        processor = EventProcessor(
            "cost", "drivetrain.", handlers(BOOK), {}, handle_batch=batch_handler(BOOK)
        )
        records = [make_record(event, offset=n) for n, event in enumerate(mixed_events())]
        for first in range(0, len(records), size):
            async with db.transaction() as tx:
                work = processor.plan(records[first : first + size])
                assert work is not None
                await work(tx)
        sent = sorted(one.payload.model_dump_json() for one in await emitted(db))
        async with db.connection() as connection:
            rows = [
                [tuple(row) for row in await connection.fetch(statement)] for statement in TABLES
            ]
        found.append((sent, rows))
    assert found[0] == found[1]
    assert len(found[0][0]) == 30
