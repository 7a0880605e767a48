"""Events into the read model: lock, load the views they touch, fold, save what changed.

The only place that writes views. It emits nothing and reads no clock, so the model can be rebuilt
from the topics at any time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drivetrain_schemas.envelope import Event, InvalidEvent
from drivetrain_schemas.registry import all_kinds
from drivetrain_schemas.topics import COMMANDS_JOBS, COMMANDS_STUDIES, REPORTS, TOPICS, Topic
from services.gateway import parked, store
from services.gateway.core import counters, model
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.processing import BatchHandler, EventBatchHandler, HandlerTable, read_event
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Tx

Notify = Callable[[], None]


def event_handlers(handle_batch: EventBatchHandler) -> HandlerTable:
    """Every type on `events.*`: each event has its row in the timeline."""

    async def handle(tx: Tx, event: Event[Any]) -> None:
        await handle_batch(tx, [event])

    kinds = all_kinds().values()
    return {kind: handle for kind in kinds if kind.kind.topic.name.startswith("events.")}


def events_handler(on_commit: Notify) -> EventBatchHandler:
    """Takes the new events of one transaction; `on_commit` wakes the live stream."""

    async def handle(tx: Tx, events: Sequence[Event[Any]]) -> None:
        last = await store.advance(tx.connection, len(events))
        await store.insert_timeline(tx.connection, last - len(events) + 1, events)
        await _project(tx, events)
        await parked.on_decisions(tx, events)
        tx.after_commit(on_commit)

    return handle


def stream_handlers(
    announce: Callable[[str], None], on_commit: Notify, tokens: RunTokens
) -> Mapping[Topic, BatchHandler]:
    """Handles commands, reports and parked records, which are not in the timeline.

    What cannot be read is parked by the service that its topic names, so it is skipped here.
    """

    async def commands(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        await _project_records(tx, records, read_event)
        tx.after_commit(lambda: announce("submitted"))
        return ()

    async def reports(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        await _project_records(tx, records, tokens.read)
        tx.after_commit(on_commit)
        return ()

    async def parked_records(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        await parked.on_parked(tx, records)
        tx.after_commit(lambda: announce("parked"))
        return ()

    of_parked = [topic for topic in TOPICS if topic.name.startswith("parked.")]
    return {
        COMMANDS_JOBS: commands,
        COMMANDS_STUDIES: commands,
        REPORTS: reports,
        **dict.fromkeys(of_parked, parked_records),
    }


async def _project_records(
    tx: Tx, records: Sequence[Record], read: Callable[[Record], Event[Any] | None]
) -> None:
    events = []
    for record in records:
        try:
            event = read(record)
        except InvalidEvent:
            continue
        if event is not None:
            events.append(event)
    if model.touched(events):
        await store.advance(tx.connection, 0)
        await _project(tx, events)


async def _project(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """Fold the events into their views; the caller holds the lock."""
    connection = tx.connection
    views = {
        noun: await store.load(connection, noun, keys)
        for noun, keys in model.touched(events).items()
    }
    changed = model.fold(views, events)
    changes = [change for of_noun in changed.values() for change in of_noun.values()]
    known = {
        table: await store.load(connection, table, keys) if keys else {}
        for table, keys in counters.touched(changes).items()
    }
    counted = counters.count(known, changes)
    for noun, of_noun in changed.items():
        if of_noun:
            await store.save(connection, noun, [change.after for change in of_noun.values()])
    for table, rows in counted.items():
        moved = [row for key, row in rows.items() if row != known[table].get(key)]
        if moved:
            await store.save(connection, table, moved)
