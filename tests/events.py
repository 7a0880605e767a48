"""Handler tests: give a service an event, see what it emits."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, encode, parse
from services.runtime.bus import Record
from services.runtime.database import Database
from services.runtime.outbox import unpack
from services.runtime.processing import (
    BatchHandler,
    EventProcessor,
    HandlerTable,
    Processor,
    RefusalTable,
)
from services.runtime.transaction import Tx

P = TypeVar("P", bound=Payload)


def make_event(payload: P, *, tenant_id: str = "default", event_id: str = "") -> Event[P]:
    return Event(
        event_id=event_id or uuid.uuid4().hex,
        source="/tests",
        occurred_at=datetime.now(UTC),
        tenant_id=tenant_id,
        payload=payload,
    )


def make_record(event: Event[Any], *, topic: str = "", offset: int = 0) -> Record:
    headers, key, value = encode(event)
    name = topic or f"drivetrain.{event.payload.kind.topic.name}"
    return Record(name, 0, offset, 0, key, value, tuple(headers))


async def handle(
    database: Database,
    handlers: HandlerTable,
    *events: Event[Any],
    refusals: RefusalTable | None = None,
) -> list[Payload]:
    """Each event in a transaction of its own, inbox included. Returns what was emitted for them."""
    processor = EventProcessor(
        database.schema.rpartition("_")[0], "drivetrain.", handlers, refusals or {}
    )
    before = await _last_row(database)
    for event in events:
        async with database.transaction() as tx:
            await process(processor, tx, make_record(event))
    return [event.payload for event in await emitted(database, after=before)]


async def process(processor: Processor, tx: Tx, record: Record) -> None:
    """What the consumer does with one record, inside its transaction."""
    work = processor.plan([record])
    if work is not None:
        await work(tx)


async def handle_batch(
    database: Database, handler: BatchHandler, *events: Event[Any]
) -> list[Payload]:
    """All events as one batch of their topic. Returns what was emitted."""
    before = await _last_row(database)
    records = [make_record(event, offset=offset) for offset, event in enumerate(events)]
    async with database.transaction() as tx:
        rejected = await handler(tx, records)
    assert not rejected, rejected
    return [event.payload for event in await emitted(database, after=before)]


async def emitted(database: Database, after: int = 0) -> list[Event[Payload]]:
    """The events in the outbox, in order."""
    async with database.connection() as connection:
        rows = await connection.fetch("select * from outbox where id > $1 order by id", after)
    return [parse(_headers(row), row["value"]) for row in rows]


async def parked(database: Database) -> list[Mapping[str, str]]:
    """The `x-parked-*` facts of what was set aside."""
    async with database.connection() as connection:
        rows = await connection.fetch("select * from outbox where topic like '%parked%'")
    return [
        {
            name.removeprefix("x-parked-"): (text or b"").decode()
            for name, text in _headers(row)
            if name.startswith("x-parked-")
        }
        for row in rows
    ]


def _headers(row: Any) -> list[tuple[str, bytes]]:
    return [(name, value or b"") for name, value in unpack(row["headers"])]


async def _last_row(database: Database) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval("select coalesce(max(id), 0) from outbox"))
