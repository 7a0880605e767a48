"""What a transaction emits: numbered without a gap, in order, traced, and only if it commits."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import MAX_EVENT_BYTES, Cause, parse
from services.runtime.bus import Record
from services.runtime.database import Database
from services.runtime.errors import EventTooLarge, is_temporary
from services.runtime.outbox import unpack
from services.runtime.parking import InvalidRecord, park, parked_id
from tests.conftest import OpenDatabase
from tests.events import emitted, make_event, parked
from tests.handlers.runtime.charges import charge
from tests.parked import put_back

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


async def say(database: Database, amount: int, tenant_id: str = "default") -> None:
    async with database.transaction() as tx:
        await tx.emit(charge(amount, tenant_id), tenant_id=tenant_id)


class Undone(Exception):
    """Rolls a transaction back."""


async def emit_and_undo(
    database: Database, payload: ChargeRecorded, callback: Callable[[], None] = lambda: None
) -> None:
    async with database.transaction() as tx:
        tx.after_commit(callback)
        await tx.emit(payload, tenant_id="default")
        raise Undone


async def test_events_of_one_key_are_numbered_without_a_gap(database: OpenDatabase) -> None:
    db = await database("cost")
    await asyncio.gather(*(say(db, number, "ab"[number % 2]) for number in range(20)))
    events = await emitted(db)
    for tenant_id in "ab":
        mine = [event.seq for event in events if event.tenant_id == tenant_id]
        # In the order of the rows' ids, by which the relay publishes.
        assert mine == list(range(1, 11))


async def test_one_transaction_numbers_each_of_its_keys_in_the_order_of_emission(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    for _ in range(2):
        async with db.transaction() as tx:
            for number, tenant_id in enumerate("abab"):
                await tx.emit(charge(number, tenant_id), tenant_id=tenant_id)
    events = await emitted(db)
    assert [(it.tenant_id, it.seq) for it in events] == [
        *(("a", 1), ("b", 1), ("a", 2), ("b", 2)),
        *(("a", 3), ("b", 3), ("a", 4), ("b", 4)),
    ]


async def test_transactions_on_the_same_keys_in_any_order_wait_for_each_other(
    database: OpenDatabase,
) -> None:
    """Each locks its counters in one order, so that none is ended by a deadlock."""
    db = await database("cost")
    tenants = [f"tenant-{number:02}" for number in range(40)]
    orders = [tenants, tenants[::-1]] * 10

    async def emit_all(order: list[str]) -> None:
        async with db.transaction() as tx:
            for tenant_id in order:
                await tx.emit(charge(1, tenant_id), tenant_id=tenant_id)

    await asyncio.gather(*(emit_all(order) for order in orders))
    events = await emitted(db)
    for tenant_id in tenants:
        mine = [event.seq for event in events if event.tenant_id == tenant_id]
        assert mine == list(range(1, len(orders) + 1)), "in the order of the rows' ids"


async def test_an_event_over_the_limit_is_refused_as_a_bug(database: OpenDatabase) -> None:
    """No reader would take it, and no retry makes it smaller."""
    db = await database("cost")
    large = charge(1).model_copy(update={"price_id": "x" * MAX_EVENT_BYTES})
    with pytest.raises(EventTooLarge, match=r"charge\.recorded of default has 26") as refused:
        async with db.transaction() as tx:
            await tx.emit(large, tenant_id="default")
    assert not is_temporary(refused.value)
    assert await emitted(db) == []


async def test_what_is_rolled_back_leaves_no_gap(database: OpenDatabase) -> None:
    db = await database("cost")
    await say(db, 1)
    with pytest.raises(Undone):
        await emit_and_undo(db, charge(2))
    await say(db, 3)
    events = await emitted(db)
    assert [(event.payload.amount_micro_usd, event.seq) for event in events] == [(1, 1), (3, 2)]


async def test_a_trace_continues_through_the_outbox(database: OpenDatabase) -> None:
    db = await database("cost")
    cause = replace(make_event(charge(1)), traceparent=TRACE, correlation_id="request-1")
    async with db.transaction() as tx:
        await tx.emit(charge(2), tenant_id="default", cause=cause)
        await tx.emit(charge(3), tenant_id="default", cause=cause)
        await tx.emit(
            charge(4), tenant_id="default", cause=Cause(cause.event_id, "request-1", TRACE)
        )
    first, second, third = await emitted(db)
    for event in (first, second, third):
        version, trace_id, span_id, flags = event.traceparent.split("-")
        assert (version, trace_id, flags) == ("00", TRACE.split("-")[1], "00")
        assert span_id != TRACE.split("-")[2]
        assert (event.causation_id, event.correlation_id) == (cause.event_id, "request-1")
    assert len({first.traceparent, second.traceparent, third.traceparent}) == 3


async def test_what_has_no_cause_begins_a_trace_of_its_own(database: OpenDatabase) -> None:
    db = await database("cost")
    await say(db, 1)
    await say(db, 2)
    first, second = (event.traceparent.split("-")[1] for event in await emitted(db))
    assert first != second


async def test_callbacks_follow_the_commit_and_nothing_else(database: OpenDatabase) -> None:
    db = await database("cost")
    called = []
    with pytest.raises(Undone):
        await emit_and_undo(db, charge(1), lambda: called.append("rolled back"))
    async with db.transaction() as tx:
        tx.after_commit(lambda: called.append("committed"))
        assert called == []
    assert called == ["committed"]


async def test_a_parked_record_is_put_back_byte_by_byte(database: OpenDatabase) -> None:
    db = await database("cost")
    headers = (("h", b"\xff"), ("n", None))
    record = Record("t.commands.jobs", 1, 7, 0, b"\xffkey", b"\xffvalue", headers)
    async with db.transaction() as tx:
        await park(tx, "cost", InvalidRecord(record, "not_json", "why"))
    async with db.connection() as connection:
        row = await connection.fetchrow("select * from outbox")
    headers = unpack(row["headers"])
    stored = replace(record, key=row["key"], value=row["value"], headers=headers)
    back = put_back(stored)
    want = (record.topic, record.key, record.value, record.headers)
    assert (back.topic, back.key, back.value, back.headers[:-1]) == want  # the last says its id
    with pytest.raises(ValueError, match="missing"):
        parse([(name, value) for name, value in back.headers], b"{}")


async def test_two_causes_in_one_transaction_are_two_traces(database: OpenDatabase) -> None:
    db = await database("cost")
    one, other = make_event(charge(1)), make_event(charge(2))
    async with db.transaction() as tx:
        for cause in (one, other, one):
            await tx.emit(cause.payload, tenant_id="default", cause=cause)
    first, second, third = (event.traceparent.split("-")[1] for event in await emitted(db))
    assert first != second
    assert first == third


async def test_headers_by_which_a_client_claims_to_be_parked_are_left_out(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    claims = (("x-parked-omitted", b"5"), ("x-parked-id", b"parked_other"), ("h", b"1"))
    record = Record("t.commands.jobs", 1, 7, 0, b"key", b"value", claims)
    async with db.transaction() as tx:
        await park(tx, "cost", InvalidRecord(record, "not_json", "why"))
    (facts,) = await parked(db)
    assert "omitted" not in facts
    assert facts["id"] == parked_id("cost", record)
