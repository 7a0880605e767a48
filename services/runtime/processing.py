"""What a service does with records, inside one transaction: handle events, or batches.

`EventProcessor` gives each event to its handler once: the inbox rows are inserted in the handlers'
own transaction, so a redelivery finds them and does nothing. `BatchProcessor` gives many records of
one topic to one function, which is idempotent by its own keys (docs/architecture.md, rule 1). What
cannot be read is parked by the one service that the topic names for it, and skipped by the others.
"""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from drivetrain_schemas.access import ACCESS, CLIENT, POD
from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import (
    Event,
    InvalidEvent,
    InvalidPayload,
    InvalidReason,
    check_key,
    parse,
)
from drivetrain_schemas.topics import TOPICS, Topic
from services.runtime import logs, sequence, tracing
from services.runtime.bus import Record
from services.runtime.errors import PlatformError
from services.runtime.instruments import (
    DUPLICATES,
    EVENT_SECONDS,
    FAILED,
    HANDLED,
    PARKED,
    PARKED_DROPPED,
    SKIPPED,
)
from services.runtime.parking import InvalidRecord, park, within_bounds
from services.runtime.retention import CLOCK_MARGIN
from services.runtime.transaction import Tx

log = logs.get()

Handler = Callable[[Tx, Any], Awaitable[None]]
HandlerTable = Mapping[type[Payload], Handler]
# Answers an invalid request; False when the request does not identify its sender.
Refusal = Callable[[Tx, InvalidPayload], Awaitable[bool]]
RefusalTable = Mapping[type[Payload], Refusal]
# Handles the new events of one transaction, in order.
EventBatchHandler = Callable[[Tx, Sequence[Event[Any]]], Awaitable[None]]
# Handles one batch; returns the records that cannot be read.
BatchHandler = Callable[[Tx, Sequence[Record]], Awaitable[Sequence[InvalidRecord]]]

# What decoders raise; anything else that the handler of a stream raises is a bug.
_DECODER_ERRORS = (
    InvalidEvent,
    RecursionError,
    UnicodeError,
    OverflowError,
    json.JSONDecodeError,
    msgspec.MsgspecError,
)


class CannotRead(PlatformError):
    """A record that a handler of a stream could not decode; it is parked."""


class NotTogether(PlatformError):
    """These records must not share a transaction: each needs its own."""


# How many events of one partition share one transaction at most.
MAX_EVENTS = 200

_REMEMBER = """
insert into inbox (digest, topic, partition, "offset")
select digest, $3, $4, "offset"
from unnest($1::bytea[], $2::bigint[], $5::timestamptz[]) as new (digest, "offset", appended_at)
where not exists (
    select 1 from inbox_floor floor where floor.topic = $3 and floor.partition = $4
        and new."offset" < floor."offset" and new.appended_at <= floor.handled_until + $6::interval)
on conflict do nothing returning digest
"""
_FORGET = "delete from inbox where digest = $1"


# What to do inside one transaction.
Work = Callable[[Tx], Awaitable[None]]


class Processor(Protocol):
    """Does the work of a consumer. `max_batch` records at most share one transaction."""

    max_batch: int

    def plan(self, records: Sequence[Record]) -> Work | None:
        """The work for these records; None, without a transaction, where there is none."""

    async def set_aside(self, tx: Tx, invalid: Sequence[InvalidRecord]) -> None:
        """Park records of one topic that this service cannot get past."""


class _Parks:
    """Sets aside for one service."""

    def __init__(self, service: str, prefix: str) -> None:
        self._service = service
        self._parked_by = {prefix + topic.name: topic.parked_by for topic in TOPICS}
        writers = (ACCESS[POD], ACCESS[CLIENT])
        self._bounded = {prefix + topic.name for access in writers for topic in access.writes}

    async def set_aside(self, tx: Tx, invalid: Sequence[InvalidRecord]) -> None:
        if not invalid:
            return
        topic = invalid[0].record.topic
        if topic in self._bounded:
            invalid, num_dropped = await within_bounds(tx, invalid)
            tx.after_commit(partial(PARKED_DROPPED.labels(topic).inc, num_dropped))
        for item in invalid:
            log.error("record parked", topic=topic, offset=item.record.offset, reason=item.reason)
            tx.after_commit(PARKED.labels(item.reason).inc)
            await park(tx, self._service, item)

    def _is_ours_to_park(self, record: Record, reason: str) -> bool:
        """Of the services that cannot read a record, one parks it: the one its topic names."""
        if self._parked_by.get(record.topic) == self._service:
            return True
        SKIPPED.labels(reason).inc()
        return False


class _Accepted(NamedTuple):
    """A record with an event that this service handles."""

    record: Record
    event: Event[Payload]


class _Refused(NamedTuple):
    """A record with a request whose payload is invalid, and who answers it."""

    record: Record
    invalid: InvalidPayload
    refusal: Refusal


class _Unreadable(NamedTuple):
    """A record that this service parks."""

    record: Record
    invalid: InvalidEvent


_Item = _Accepted | _Refused | _Unreadable


class EventProcessor(_Parks):
    """Up to `max_batch` events of one partition in one transaction, each with its effects once.

    `handle_batch` handles the new events in order, instead of the per-type handlers; the keys of
    `handlers` still define which types are read. `reads_all`: there is a handler for every type of
    the topics read, so that a gap is a loss.
    """

    def __init__(
        self,
        service: str,
        prefix: str,
        handlers: HandlerTable,
        refusals: RefusalTable,
        *,
        reads_all: bool = False,
        handle_batch: EventBatchHandler | None = None,
        max_batch: int = MAX_EVENTS,
    ) -> None:
        super().__init__(service, prefix)
        self.max_batch = max_batch
        self._handlers = handlers
        self._refusals = refusals
        self._reads_all = reads_all
        self._handle_batch = handle_batch

    def plan(self, records: Sequence[Record]) -> Work | None:
        items = [item for record in records if (item := self._read(record)) is not None]
        return partial(self._process, items=items) if items else None

    def _read(self, record: Record) -> _Item | None:
        try:
            event = read_event(record)
        except InvalidEvent as invalid:
            return self._answer(record, invalid)
        return _Accepted(record, event) if type(event.payload) in self._handlers else None

    def _answer(self, record: Record, invalid: InvalidEvent) -> _Item | None:
        if isinstance(invalid, InvalidPayload):
            refusal = self._refusals.get(invalid.payload_class)
            if refusal is not None:
                return _Refused(record, invalid, refusal)
        is_ours = self._is_ours_to_park(record, str(invalid.reason))
        return _Unreadable(record, invalid) if is_ours else None

    async def _process(self, tx: Tx, items: Sequence[_Item]) -> None:
        new = await _new_items(tx, items)
        accepted = [item.event for item in new if isinstance(item, _Accepted)]
        if self._reads_all:
            await sequence.note(tx, accepted)
        for is_accepted, group in groupby(new, lambda item: isinstance(item, _Accepted)):
            if is_accepted:
                await self._handle(tx, [cast(_Accepted, item).event for item in group])
                continue
            refused = [await self._refused(tx, item) for item in group]
            await self.set_aside(tx, [invalid for invalid in refused if invalid is not None])
        tx.after_commit(partial(_count, accepted))

    async def _handle(self, tx: Tx, events: Sequence[Event[Any]]) -> None:
        if self._handle_batch is not None:
            with tracing.handling(events):
                await _timed(events, self._handle_batch(tx, events))
            return
        for event in events:
            with tracing.handling([event]):
                await _timed([event], self._handlers[type(event.payload)](tx, event))

    async def _refused(self, tx: Tx, item: _Item) -> InvalidRecord | None:
        """What is to be parked, where nobody gets an answer."""
        invalid = cast(_Unreadable, item).invalid
        if isinstance(item, _Refused):
            if await item.refusal(tx, item.invalid):
                return None
            # Not marked as handled: a replay must count as new; a later version may be able to read
            # it.
            await tx.connection.execute(_FORGET, _digest(item))
        return InvalidRecord(item.record, str(invalid.reason), invalid.detail)


class BatchProcessor(_Parks):
    """Many records of one high-volume topic, one transaction."""

    max_batch = 2000

    def __init__(self, service: str, prefix: str, streams: Mapping[Topic, BatchHandler]) -> None:
        super().__init__(service, prefix)
        self._streams = {prefix + topic.name: stream for topic, stream in streams.items()}

    def plan(self, records: Sequence[Record]) -> Work | None:
        """All records are of one partition, so of one topic."""
        decoded = [record for record in records if record.problem is None]
        rejected = [
            InvalidRecord(record, str(InvalidReason.UNDECODABLE), record.problem)
            for record in records
            if record.problem is not None
            and self._is_ours_to_park(record, str(InvalidReason.UNDECODABLE))
        ]
        return (
            partial(self._handle, records=decoded, rejected=rejected)
            if decoded or rejected
            else None
        )

    async def _handle(
        self, tx: Tx, records: Sequence[Record], rejected: Sequence[InvalidRecord]
    ) -> None:
        if records:
            topic = records[0].topic
            rejected = [*rejected, *await self._take(tx, topic, records)]
            tx.after_commit(partial(HANDLED.labels(topic).inc, len(records)))
        await self.set_aside(tx, rejected)

    async def _take(self, tx: Tx, topic: str, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        try:
            return await self._streams[topic](tx, records)
        except _DECODER_ERRORS as error:
            raise CannotRead(repr(error)) from error
        except Exception:
            if len(records) == 1:
                FAILED.labels(topic).inc()
            raise


async def _new_items(tx: Tx, items: Sequence[_Item]) -> list[_Item]:
    """The items that were not handled before, in order; each event id comes once."""
    firsts: dict[bytes, int] = {}
    for place, item in enumerate(items):
        if isinstance(item, _Unreadable):
            continue
        first = firsts.setdefault(_digest(item), place)
        if first != place and isinstance(items[first], _Refused):
            # The id of a refused request without an answer stays free for the next one.
            raise NotTogether("a refused request and another record have one id")
    if not firsts:
        return list(items)
    record = items[0].record  # all are of one partition
    rows = await tx.connection.fetch(
        _REMEMBER,
        list(firsts),
        [items[place].record.offset for place in firsts.values()],
        record.topic,
        record.partition,
        [items[place].record.appended_at for place in firsts.values()],
        CLOCK_MARGIN,
    )
    new = {firsts[row["digest"]] for row in rows}
    kept: list[_Item] = []
    for place, item in enumerate(items):
        if isinstance(item, _Unreadable) or place in new:
            kept.append(item)
        else:
            tx.after_commit(DUPLICATES.labels(_type(item)).inc)
    return kept


def _digest(item: _Accepted | _Refused) -> bytes:
    """The key that identifies the item's event in the inbox."""
    event = item.event if isinstance(item, _Accepted) else item.invalid.attributes
    return inbox_digest(event.source, event.event_id)


def inbox_digest(source: str, event_id: str) -> bytes:
    """The inbox key of an event. No attribute holds NUL."""
    return hashlib.sha256(f"{source}\0{event_id}".encode()).digest()


def _type(item: _Accepted | _Refused) -> str:
    return item.event.type if isinstance(item, _Accepted) else item.invalid.attributes.type


async def _timed(events: Sequence[Event[Any]], handling: Awaitable[None]) -> None:
    """Measured per type. A failed batch is handled again one by one, so only one alone counts."""
    started_at = time.monotonic()
    try:
        await handling
    except Exception:
        if len(events) == 1:
            FAILED.labels(events[0].type).inc()
        raise
    seconds = (time.monotonic() - started_at) / len(events)
    for event in events:
        EVENT_SECONDS.labels(event.type).observe(seconds)


def _count(events: Sequence[Event[Any]]) -> None:
    for event in events:
        HANDLED.labels(event.type).inc()


def read_event(record: Record) -> Event[Payload]:
    """The event of a record.

    Raises InvalidEvent, also where its topic or its key is wrong. Write access is granted per
    topic, so an event is invalid on any other topic.
    """
    if record.problem is not None:
        raise InvalidEvent(InvalidReason.UNDECODABLE, record.problem)
    try:
        event = parse(record.headers, record.value, timestamp_ms=record.timestamp_ms)
    except InvalidPayload as invalid:
        _refuse_wrong_topic(record, invalid.payload_class)
        raise
    _refuse_wrong_topic(record, type(event.payload))
    check_key(event, record.key)
    return event


def _refuse_wrong_topic(record: Record, payload_class: type[Payload]) -> None:
    kind = payload_class.kind
    if not record.topic.endswith(kind.topic.name):  # the prefix comes first
        detail = f"{kind.type} is written to {kind.topic.name}"
        raise InvalidEvent(InvalidReason.WRONG_TOPIC, detail)


def topics_of(payloads: Iterable[type[Payload]]) -> list[Topic]:
    """The topics on which these event types travel, in the order of their declaration."""
    wanted = {payload.kind.topic for payload in payloads}
    return [topic for topic in TOPICS if topic in wanted]
