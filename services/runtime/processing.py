"""What a service does with records, inside one transaction: handle events, or take batches.

`EventProcessor` gives each event to its handler once: the inbox row is inserted in the handler's
own transaction, so a redelivery finds it and does nothing. `BatchProcessor` gives many records of
one topic to one function, which is idempotent by its own keys (rule 1). What cannot be read is
parked by the one service that the topic names for it, and skipped by the others.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import InvalidEvent, InvalidPayload, parse
from drivetrain_schemas.topics import TOPICS, Topic
from services.runtime import logs
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


class Processor(Protocol):
    """Does the work of a consumer. `max_batch` records at most share one transaction."""

    max_batch: int

    async def process(self, tx: Tx, records: Sequence[Record]) -> None: ...

    async def set_aside(self, tx: Tx, record: Record, reason: str, detail: str) -> None:
        """Park a record that this service cannot get past."""


class EventProcessor:
    """One event, one handler, one transaction."""

    max_batch = 1

    def __init__(
        self, service: str, prefix: str, handlers: HandlerTable, refusals: RefusalTable
    ) -> None:
        self._service = service
        self._handlers = handlers
        self._refusals = refusals
        self._parked_by = {prefix + topic.name: topic.parked_by for topic in TOPICS}

    async def process(self, tx: Tx, records: Sequence[Record]) -> None:
        for record in records:
            await self._process(tx, record)

    async def set_aside(self, tx: Tx, record: Record, reason: str, detail: str) -> None:
        log.error("record parked", topic=record.topic, offset=record.offset, reason=reason)
        PARKED.labels(reason).inc()
        await park(tx, self._service, Unfit(record, reason, detail))

    async def _process(self, tx: Tx, record: Record) -> None:
        try:
            event = parse(record.headers, record.value)
        except InvalidPayload as invalid:
            await self._refuse(tx, record, invalid)
            return
        except InvalidEvent as invalid:
            await self._not_an_event(tx, record, invalid)
            return
        handler = self._handlers.get(type(event.payload))
        if handler is None:
            return
        if not await _is_new(tx, record, event.source, event.event_id):
            DUPLICATES.labels(event.type).inc()
            return
        await handler(tx, event)
        HANDLED.labels(event.type).inc()

    async def _refuse(self, tx: Tx, record: Record, invalid: InvalidPayload) -> None:
        refusal = self._refusals.get(invalid.payload_class)
        if refusal is None:
            await self._not_an_event(tx, record, invalid)
            return
        attributes = invalid.attributes
        if not await _is_new(tx, record, attributes.source, attributes.event_id):
            DUPLICATES.labels(attributes.type).inc()
            return
        if not await refusal(tx, invalid):
            await self.set_aside(tx, record, str(invalid.reason), invalid.detail)

    async def _not_an_event(self, tx: Tx, record: Record, invalid: InvalidEvent) -> None:
        if self._parked_by.get(record.topic) == self._service:
            await self.set_aside(tx, record, str(invalid.reason), invalid.detail)
        else:
            SKIPPED.labels(str(invalid.reason)).inc()


class BatchProcessor:
    """Many records of high-volume topics, one transaction per topic's share of a batch."""

    max_batch = 2000

    def __init__(self, service: str, prefix: str, streams: Mapping[Topic, BatchHandler]) -> None:
        self._service = service
        self._streams = {prefix + topic.name: stream for topic, stream in streams.items()}

    async def process(self, tx: Tx, records: Sequence[Record]) -> None:
        by_topic: dict[str, list[Record]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, batch in by_topic.items():
            for unfit in await self._streams[topic](tx, batch):
                await self.set_aside(tx, unfit.record, unfit.reason, unfit.detail)
            HANDLED.labels(topic).inc(len(batch))

    async def set_aside(self, tx: Tx, record: Record, reason: str, detail: str) -> None:
        log.error("record parked", topic=record.topic, offset=record.offset, reason=reason)
        PARKED.labels(reason).inc()
        await park(tx, self._service, Unfit(record, reason, detail))


async def _is_new(tx: Tx, record: Record, source: str, event_id: str) -> bool:
    row = await tx.connection.fetchval(
        _REMEMBER, source, event_id, record.topic, record.partition, record.offset
    )
    return row is not None


def topics_of(payloads: Iterable[type[Payload]]) -> list[Topic]:
    """The topics on which these event types travel, in the order of their declaration."""
    wanted = {payload.kind.topic for payload in payloads}
    return [topic for topic in TOPICS if topic in wanted]
