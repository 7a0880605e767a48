"""What a transaction emits: numbered without a gap, in order, traced, and only if it commits."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import parse
from services.runtime.bus import Record
from services.runtime.database import Database
from services.runtime.parking import Unfit, original, park
from tests.conftest import OpenDatabase
from tests.events import emitted, make_event
from tests.handlers.runtime.charges import charge

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


async def test_what_is_rolled_back_leaves_no_gap(database: OpenDatabase) -> None:
    db = await database("cost")
    await say(db, 1)
    with pytest.raises(Undone):
        await emit_and_undo(db, charge(2))
    await say(db, 3)
    events = await emitted(db)
    assert [(event.payload.amount_micro_usd, event.seq) for event in events] == [(1, 1), (3, 2)]


async def test_a_trace_goes_on_through_the_outbox(database: OpenDatabase) -> None:
    db = await database("cost")
    cause = replace(make_event(charge(1)), traceparent=TRACE, correlation_id="request-1")
    async with db.transaction() as tx:
        await tx.emit(charge(2), tenant_id="default", cause=cause)
        await tx.emit(charge(3), tenant_id="default", cause=cause)
    first, second = await emitted(db)
    for event in (first, second):
        version, trace_id, span_id, flags = event.traceparent.split("-")
        assert (version, trace_id, flags) == ("00", TRACE.split("-")[1], "00")
        assert span_id != TRACE.split("-")[2]
        assert (event.causation_id, event.correlation_id) == (cause.event_id, "request-1")
    assert first.traceparent != second.traceparent


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
        await park(tx, "cost", Unfit(record, "not_json", "why"))
    async with db.connection() as connection:
        row = await connection.fetchrow("select * from outbox")
    headers = tuple(zip(row["header_names"], row["header_values"], strict=True))
    back = original(replace(record, key=row["key"], value=row["value"], headers=headers))
    want = (record.topic, record.key, record.value, record.headers)
    assert (back.topic, back.key, back.value, back.headers[:-1]) == want  # the last says its id
    with pytest.raises(ValueError, match="missing"):
        parse([(name, value) for name, value in back.headers], b"{}")
