"""Reads from Apache Kafka, behind the port of `bus`, with aiokafka.

Every default that matters is set here, because aiokafka's own are unsafe for this use: manual
commits, earliest offset, static membership, round-robin assignor.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from drivetrain_schemas.kafka_security import OF_SERVICES, explain
from services.runtime import decoding, logs
from services.runtime.bus import Partition, Record
from services.runtime.errors import KafkaUnavailable
from services.runtime.kafka_access import KafkaAccess, why

log = logs.get()
decoding.install()

COMMIT_SECONDS = 15.0
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
                async with asyncio.timeout(COMMIT_SECONDS):
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
            problem = explain(error, OF_SERVICES)
            raise KafkaUnavailable(f"Kafka tells no ends of topics: {problem}") from error
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
