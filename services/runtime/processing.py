"""What a service does with records, inside one transaction: handle events, or take batches.

`EventProcessor` gives each event to its handler once: the inbox row is inserted in the handler's
own transaction, so a redelivery finds it and does nothing. `BatchProcessor` gives many records of
one topic to one function, which is idempotent by its own keys (rule 1). What cannot be read is
parked by the one service that the topic names for it, and skipped by the others.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import (
    Event,
    InvalidEvent,
    InvalidPayload,
    InvalidReason,
    parse,
)
from drivetrain_schemas.topics import TOPICS, Topic
from services.runtime import logs, sequence
from services.runtime.bus import Record
from services.runtime.instruments import DUPLICATES, HANDLED, PARKED, SKIPPED
from services.runtime.parking import Unfit, park
from services.runtime.transaction import Tx

log = logs.get()

Handler = Callable[[Tx, Any], Awaitable[None]]
HandlerTable = Mapping[type[Payload], Handler]
# Answers a request whose payload is invalid; False when there is nobody to answer.
Refusal = Callable[[Tx, InvalidPayload], Awaitable[bool]]
RefusalTable = Mapping[type[Payload], Refusal]
# Takes one batch; returns the records that cannot be read.
BatchHandler = Callable[[Tx, Sequence[Record]], Awaitable[Sequence[Unfit]]]

_REMEMBER = """
insert into inbox (source, event_id, topic, partition, "offset") values ($1, $2, $3, $4, $5)
on conflict do nothing returning 1
"""
_FORGET = "delete from inbox where source = $1 and event_id = $2"


# What to do inside one transaction.
Work = Callable[[Tx], Awaitable[None]]


class Processor(Protocol):
    """Does the work of a consumer. `max_batch` records at most share one transaction."""

    max_batch: int

    def plan(self, records: Sequence[Record]) -> Work | None:
        """What these records ask for; None, and no transaction, where they ask for nothing."""

    async def set_aside(self, tx: Tx, record: Record, reason: str, detail: str) -> None:
        """Park a record that this service cannot get past."""


class _Parks:
    """Sets aside for one service."""

    def __init__(self, service: str) -> None:
        self._service = service

    async def set_aside(self, tx: Tx, record: Record, reason: str, detail: str) -> None:
        log.error("record parked", topic=record.topic, offset=record.offset, reason=reason)
        PARKED.labels(reason).inc()
        await park(tx, self._service, Unfit(record, reason, detail))


class EventProcessor(_Parks):
    """One event, one handler, one transaction.

    `hears_all`: there is a handler for every type of the topics read, so that a gap is a loss.
    """

    max_batch = 1

    def __init__(
        self,
        service: str,
        prefix: str,
        handlers: HandlerTable,
        refusals: RefusalTable,
        hears_all: bool = False,
    ) -> None:
        super().__init__(service)
        self._handlers = handlers
        self._refusals = refusals
        self._hears_all = hears_all
        self._parked_by = {prefix + topic.name: topic.parked_by for topic in TOPICS}

    def plan(self, records: Sequence[Record]) -> Work | None:
        (record,) = records
        try:
            event = read_event(record)
        except InvalidPayload as invalid:
            refusal = self._refusals.get(invalid.payload_class)
            if refusal is not None:
                return partial(self._refuse, record=record, invalid=invalid, refusal=refusal)
            return self._unreadable(record, invalid)
        except InvalidEvent as invalid:
            return self._unreadable(record, invalid)
        handler = self._handlers.get(type(event.payload))
        if handler is None:
            return None
        return partial(self._handle, record=record, event=event, handler=handler)

    async def _handle(
        self, tx: Tx, record: Record, event: Event[Payload], handler: Handler
    ) -> None:
        if not await _is_new(tx, record, event.source, event.event_id):
            DUPLICATES.labels(event.type).inc()
            return
        if self._hears_all:
            await sequence.hear(tx, event)
        await handler(tx, event)
        HANDLED.labels(event.type).inc()

    async def _refuse(
        self, tx: Tx, record: Record, invalid: InvalidPayload, refusal: Refusal
    ) -> None:
        attributes = invalid.attributes
        if not await _is_new(tx, record, attributes.source, attributes.event_id):
            DUPLICATES.labels(attributes.type).inc()
            return
        if not await refusal(tx, invalid):
            # Not handled: a replay must find it new, for a later version may be able to read it.
            await tx.connection.execute(_FORGET, attributes.source, attributes.event_id)
            await self.set_aside(tx, record, str(invalid.reason), invalid.detail)

    def _unreadable(self, record: Record, invalid: InvalidEvent) -> Work | None:
        reason = str(invalid.reason)
        if self._parked_by.get(record.topic) != self._service:
            SKIPPED.labels(reason).inc()
            return None
        return partial(self.set_aside, record=record, reason=reason, detail=invalid.detail)


class BatchProcessor(_Parks):
    """Many records of one high-volume topic, one transaction."""

    max_batch = 2000

    def __init__(self, service: str, prefix: str, streams: Mapping[Topic, BatchHandler]) -> None:
        super().__init__(service)
        self._streams = {prefix + topic.name: stream for topic, stream in streams.items()}

    def plan(self, records: Sequence[Record]) -> Work | None:
        """All records are of one partition, so of one topic."""
        return partial(self._handle, records=records)

    async def _handle(self, tx: Tx, records: Sequence[Record]) -> None:
        topic = records[0].topic
        for unfit in await self._streams[topic](tx, records):
            await self.set_aside(tx, unfit.record, unfit.reason, unfit.detail)
        HANDLED.labels(topic).inc(len(records))


async def _is_new(tx: Tx, record: Record, source: str, event_id: str) -> bool:
    row = await tx.connection.fetchval(
        _REMEMBER, source, event_id, record.topic, record.partition, record.offset
    )
    return row is not None


def read_event(record: Record) -> Event[Payload]:
    """The event of a record. Raises InvalidEvent, also where it came on another topic than its own.

    Who may write to a topic is decided per topic, so an event counts on no other one.
    """
    try:
        event = parse(record.headers, record.value, timestamp_ms=record.timestamp_ms)
    except InvalidPayload as invalid:
        _refuse_foreign(record, invalid.payload_class)
        raise
    _refuse_foreign(record, type(event.payload))
    return event


def _refuse_foreign(record: Record, payload_class: type[Payload]) -> None:
    kind = payload_class.kind
    if not record.topic.endswith(kind.topic.name):  # before it stands the prefix
        detail = f"{kind.type} is written to {kind.topic.name}"
        raise InvalidEvent(InvalidReason.WRONG_TOPIC, detail)


def topics_of(payloads: Iterable[type[Payload]]) -> list[Topic]:
    """The topics on which these event types travel, in the order of their declaration."""
    wanted = {payload.kind.topic for payload in payloads}
    return [topic for topic in TOPICS if topic in wanted]
