"""Apache Kafka behind the two ports of `bus`, with aiokafka.

Every default that matters is set here, because aiokafka's own are unsafe for this use: manual
commits, all acknowledgements, idempotence, earliest offset, static membership, round-robin
assignor. No Kafka transactions: aiokafka cannot fence them (issues 844, 1145).
"""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)

from services.runtime import decoding, logs
from services.runtime.bus import (
    DELIVERED,
    BusUnavailable,
    Delivery,
    OnSettled,
    Outcome,
    OutRecord,
    Partition,
    PublishFailed,
    Record,
)
from services.runtime.errors import KafkaUnavailable
from services.runtime.kafka_access import KafkaAccess, why

log = logs.get()
decoding.install()

ACK_SECONDS = 15.0
START_SECONDS = 60.0
POSITION_SECONDS = 1.0
SESSION_MS = 30_000
MAX_POLL_INTERVAL_MS = 300_000
# A poll ends after this many bytes of values, and reads this many records at a time.
MAX_POLL_BYTES = 8 * 1024 * 1024
PORTION = 25
IDLE_SECONDS = 0.05
# New records end a fetch immediately; an empty response costs as much as a full one, so a consumer
# that is idle waits longer. While there is a backlog, a fetch for the other partitions must not
# delay the next one for the partition that is read.
FETCH_WAIT_MS = 1_000
IDLE_FETCH_WAIT_MS = 5_000
BACKLOG_FETCH_WAIT_MS = 100
IDLE_AFTER_SECONDS = 5.0


PRODUCER_OPTIONS: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 2,
    # Below the limit of every topic, so a batch refused for its size is a single too large record.
    "max_batch_size": 131_072,
    # The broker's own limit per topic is lower, but for what is parked (`topics`).
    "max_request_size": 2_000_000,
    "compression_type": None,
}
CONSUMER_OPTIONS: Mapping[str, Any] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "partition_assignment_strategy": (RoundRobinPartitionAssignor,),
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
    "fetch_max_wait_ms": FETCH_WAIT_MS,
    "fetch_max_bytes": 16 * 1024 * 1024,
    "max_partition_fetch_bytes": 1024 * 1024,
}


# Errors that no retry can change.
REFUSALS = (
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)


class KafkaPublisher:
    """An idempotent producer, replaced after every failure.

    aiokafka's producer stays unusable after OutOfOrderSequenceNumber (issue 1017), with idempotence
    its batches never expire, and a broker's crash can end its sender task with any exception; so
    each call has its own timeout, and any error means *unknown*, not *failed*: the caller sends
    again, readers drop duplicates. Only what no retry can change is *refused*.
    """

    def __init__(self, access: KafkaAccess, client_id: str) -> None:
        self._access = access
        self._client_id = client_id
        self._current: _Shared | None = None
        self._lock = asyncio.Lock()

    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        call = _Call(records, on_settled)
        shared: _Shared | None = None
        problem = ""
        is_usable = True  # also when this call is cancelled
        try:
            async with asyncio.timeout(ACK_SECONDS):
                shared = await self._connected()
                await call.send(shared.producer)
                await call.settled()
            is_usable = call.is_acknowledged()
        except Exception as error:
            is_usable = False
            problem = str(error) if isinstance(error, KafkaUnavailable) else repr(error)
            if not isinstance(error, (KafkaError, KafkaUnavailable, OSError, TimeoutError)):
                log.exception("the producer failed; it is replaced")
        finally:
            await self._release(shared, is_usable)
        call.give_up(problem)
        if not call.is_acknowledged():
            kind = BusUnavailable if shared is None else PublishFailed
            raise kind(call.deliveries(), problem or call.first_problem())

    async def close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            await _abandon(current.producer)

    async def _connected(self) -> "_Shared":
        async with self._lock:
            if self._current is None:
                producer = AIOKafkaProducer(
                    client_id=self._client_id, **self._access.options(), **PRODUCER_OPTIONS
                )
                try:
                    await producer.start()
                except (KafkaError, OSError) as error:
                    await _abandon(producer)
                    raise KafkaUnavailable(await why(self._access, error)) from error
                except BaseException:
                    await _abandon(producer)
                    raise
                self._current = _Shared(producer)
            self._current.num_calls += 1
            return self._current

    async def _release(self, shared: "_Shared | None", is_usable: bool) -> None:
        """The last call that uses a replaced producer closes it: others may still be answered."""
        if shared is None:
            return
        shared.num_calls -= 1
        if not is_usable and self._current is shared:
            self._current = None
        if self._current is not shared and shared.num_calls == 0:
            await _abandon(shared.producer)


@dataclass(slots=True)
class _Shared:
    """One producer and the calls that use it."""

    producer: Any
    num_calls: int = 0


class _Call:
    """The records of one `publish` call, and the outcome of each."""

    def __init__(self, records: Sequence[OutRecord], on_settled: OnSettled | None) -> None:
        self._records = records
        self._on_settled = on_settled
        self._deliveries: list[Delivery | None] = [None] * len(records)
        self._num_open = len(records)
        self._is_settled = asyncio.Event()

    async def send(self, producer: Any) -> None:
        """Pass every record to the producer, each topic separately: one may have to wait."""
        by_topic: dict[str, list[int]] = {}
        for index, record in enumerate(self._records):
            by_topic.setdefault(record.topic, []).append(index)
        async with asyncio.TaskGroup() as group:
            for indexes in by_topic.values():
                group.create_task(self._send_topic(producer, indexes))

    async def settled(self) -> None:
        if self._num_open:
            await self._is_settled.wait()

    def give_up(self, detail: str) -> None:
        """Mark every record without an outcome as unknown."""
        for index, delivery in enumerate(self._deliveries):
            if delivery is None:
                self._settle(index, Delivery(Outcome.UNKNOWN, detail))

    def deliveries(self) -> list[Delivery]:
        return [delivery for delivery in self._deliveries if delivery is not None]

    def is_acknowledged(self) -> bool:
        return all(delivery is DELIVERED for delivery in self._deliveries)

    def first_problem(self) -> str:
        return next((it.detail for it in self.deliveries() if it is not DELIVERED), "")

    async def _send_topic(self, producer: Any, indexes: Sequence[int]) -> None:
        for position, index in enumerate(indexes):
            try:
                ack = await _send(producer, self._records[index])
            except Exception as error:
                delivery = _failure(error)
                self._settle(index, delivery)
                if delivery.outcome is Outcome.REFUSED:
                    continue
                for later in indexes[position + 1 :]:  # of the same keys, maybe: in order or not
                    self._settle(later, delivery)
                return
            ack.add_done_callback(partial(self._on_ack, index))

    def _on_ack(self, index: int, ack: "asyncio.Future[Any]") -> None:
        if ack.cancelled():
            self._settle(index, Delivery(Outcome.UNKNOWN, "cancelled"))
        else:
            error = ack.exception()  # also marks it as seen
            self._settle(index, DELIVERED if error is None else _failure(error))

    def _settle(self, index: int, delivery: Delivery) -> None:
        if self._deliveries[index] is not None:
            return  # timed out; a later result of the producer is ignored
        self._deliveries[index] = delivery
        self._num_open -= 1
        if not self._num_open:
            self._is_settled.set()
        if self._on_settled is not None:
            self._on_settled(index, delivery)


async def _send(producer: Any, record: OutRecord) -> "asyncio.Future[Any]":
    # aiokafka asserts that one of them is set; a parked record may have neither.
    value = b"" if record.key is None and record.value is None else record.value
    ack: asyncio.Future[Any] = await producer.send(
        record.topic, value=value, key=record.key, headers=list(record.headers)
    )
    return ack


def _failure(error: BaseException) -> Delivery:
    outcome = Outcome.REFUSED if isinstance(error, REFUSALS) else Outcome.UNKNOWN
    return Delivery(outcome, repr(error))


async def _abandon(producer: Any) -> None:
    """Stop a producer that may never be able to flush: the outcome of its records is unknown.

    Its errors are ignored: aiokafka's sender may have failed with any exception.
    """
    with contextlib.suppress(Exception):
        # Otherwise aiokafka's own flush never returns.
        held = producer._message_accumulator
        held.fail_all(KafkaError("the producer was given up"))
        for batch in itertools.chain(held._pending_batches, *held._batches.values()):
            batch._drain_waiter.exception()  # else asyncio logs each as never retrieved
    try:
        async with asyncio.timeout(2.0):
            await producer.stop()
    except Exception as error:
        log.debug("producer did not stop in order", error=repr(error))
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer._sender.close(), 1.0)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(producer.client.close(), 1.0)


class KafkaSource:
    """A consumer with static membership: a restart takes its partitions back at once."""

    def __init__(
        self,
        access: KafkaAccess,
        group: str,
        topics: Sequence[str],
        *,
        member: str,
        max_records: int,
    ) -> None:
        self._access = access
        self._topics = tuple(topics)
        self._max_records = max_records
        self._options = {
            "group_id": group,
            "group_instance_id": member,
            "client_id": member,
            **access.options(),
            **CONSUMER_OPTIONS,
        }
        self._consumer: Any = None
        self._busy_until = 0.0

    async def start(self) -> None:
        # One that was closed cannot be started again, so each attempt has its own.
        consumer = AIOKafkaConsumer(*self._topics, **self._options)
        try:
            async with asyncio.timeout(START_SECONDS):
                await consumer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            await _close(consumer)
            raise KafkaUnavailable(await why(self._access, error)) from error
        except BaseException:
            await _close(consumer)
            raise
        self._consumer = consumer

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _close(consumer)

    async def poll(
        self,
        timeout_seconds: float,
        partitions: Set[Partition] | None = None,
        max_records: int | None = None,
    ) -> Mapping[Partition, Sequence[Record]]:
        owned = self.assignment()
        chosen = [
            TopicPartition(*item) for item in (owned if partitions is None else partitions & owned)
        ]
        if not chosen:
            await asyncio.sleep(min(timeout_seconds, IDLE_SECONDS))
            return {}
        polled: dict[Partition, list[Record]] = {}
        num_left, num_bytes = max_records or self._max_records, 0
        timeout_ms = int(timeout_seconds * 1000)
        withheld = decoding.withheld(chosen)
        if withheld:  # and not the following ones, which would be decoded
            chosen, num_left = withheld[:1], 1
        # In small portions, because records may be large.
        while num_left and num_bytes < MAX_POLL_BYTES:
            taken = await self._consumer.getmany(
                *chosen, timeout_ms=timeout_ms, max_records=min(num_left, PORTION)
            )
            if not taken:
                break
            for tp, items in taken.items():
                records = [_record(item) for item in items]
                polled.setdefault(Partition(*tp), []).extend(records)
                num_left -= len(records)
                num_bytes += sum(len(record.value or b"") for record in records)
            timeout_ms = 0
        self._set_fetch_wait(bool(polled), not num_left or num_bytes >= MAX_POLL_BYTES)
        return polled

    def _set_fetch_wait(self, has_records: bool, has_backlog: bool) -> None:
        """How long the broker may hold the next fetch. aiokafka has no public way to set it."""
        now = asyncio.get_running_loop().time()
        # A fetch for the others would delay a partition that is resumed meanwhile.
        if has_records or self._consumer.paused():
            self._busy_until = now + IDLE_AFTER_SECONDS
        wait_ms = FETCH_WAIT_MS if now < self._busy_until else IDLE_FETCH_WAIT_MS
        if has_backlog:
            wait_ms = BACKLOG_FETCH_WAIT_MS
        self._consumer._fetcher._fetch_max_wait_ms = wait_ms

    def withhold(self, partition: Partition) -> None:
        decoding.withhold(TopicPartition(*partition))

    async def commit(self, offsets: Mapping[Partition, int]) -> bool:
        owned = self.assignment()
        kept = {TopicPartition(*item): offset for item, offset in offsets.items() if item in owned}
        try:
            if kept:
                async with asyncio.timeout(ACK_SECONDS):
                    await self._consumer.commit(kept)
        except (CommitFailedError, IllegalStateError) as error:
            log.warning("partitions were taken over before the commit", error=repr(error))
            return False
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning("offsets are not committed yet", error=repr(error))
            return False
        return len(kept) == len(offsets)

    def seek(self, partition: Partition, offset: int) -> None:
        # Taken over meanwhile: the new owner starts at the committed offset.
        with contextlib.suppress(IllegalStateError):
            self._consumer.seek(TopicPartition(*partition), offset)

    def pause(self, partition: Partition) -> None:
        with contextlib.suppress(IllegalStateError):
            self._consumer.pause(TopicPartition(*partition))

    def resume(self, partition: Partition) -> None:
        with contextlib.suppress(IllegalStateError):
            self._consumer.resume(TopicPartition(*partition))

    def assignment(self) -> frozenset[Partition]:
        if self._consumer is None:
            return frozenset()
        return frozenset(Partition(*tp) for tp in self._consumer.assignment())

    async def position(self, partition: Partition) -> int | None:
        try:
            async with asyncio.timeout(POSITION_SECONDS):
                return int(await self._consumer.position(TopicPartition(*partition)))
        except (KafkaError, TimeoutError):
            return None

    async def end_offsets(self) -> Mapping[Partition, int]:
        if self._consumer is None:
            raise KafkaUnavailable("the consumer has not joined yet")
        # Without a leader for one of them aiokafka would return none at all. The call that returns
        # only those with a leader is public on the metadata, not on the consumer.
        cluster = self._consumer._client.cluster
        partitions = [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in cluster.available_partitions_for_topic(topic) or ()
        ]
        try:
            ends = await self._consumer.end_offsets(partitions)
        except (KafkaError, OSError) as error:
            raise KafkaUnavailable(f"Kafka does not answer: {error!r}") from error
        return {Partition(*tp): offset for tp, offset in ends.items()}


async def _close(consumer: Any) -> None:
    try:
        async with asyncio.timeout(5.0):
            await consumer.stop()
    except (KafkaError, OSError, TimeoutError) as error:
        log.warning("consumer did not close in order", error=repr(error))


def _record(item: Any) -> Record:
    problem = decoding.problem_of(item.headers)
    return Record(
        topic=item.topic,
        partition=item.partition,
        offset=item.offset,
        timestamp_ms=item.timestamp,
        key=item.key,
        value=item.value,
        headers=tuple(item.headers) if problem is None else (),
        problem=problem,
    )
