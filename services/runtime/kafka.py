"""Apache Kafka behind the two ports of `bus`, by aiokafka.

Every default that matters is set here, because aiokafka's own are unsafe for this use: manual
commits, all acknowledgements, idempotence, earliest offset, static membership, round-robin
assignor. No Kafka transactions: aiokafka cannot fence them (issues 844, 1145).
"""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from services.runtime import decoding, logs
from services.runtime.bus import OutRecord, Partition, PublishFailed, Record
from services.runtime.errors import TemporaryError
from services.runtime.settings import Settings

log = logs.get()
decoding.install()

ACK_SECONDS = 15.0
REQUEST_MS = 10_000
START_SECONDS = 60.0
POSITION_SECONDS = 1.0
SESSION_MS = 30_000
MAX_POLL_INTERVAL_MS = 300_000


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Where the brokers are and how to log in."""

    bootstrap_servers: str
    username: str | None = None
    password: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> "KafkaAccess":
        password = settings.kafka_sasl_password
        return cls(
            settings.kafka_bootstrap_servers,
            settings.kafka_sasl_username,
            password.get_secret_value() if password else None,
        )

    def options(self) -> dict[str, Any]:
        """Connection options that every aiokafka client takes."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "request_timeout_ms": REQUEST_MS,
            "metadata_max_age_ms": 60_000,
        }
        if self.username is not None:
            options |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options


PRODUCER_OPTIONS: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 2,
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
    "fetch_max_wait_ms": 200,
}


class KafkaPublisher:
    """An idempotent producer that is built anew after every failure.

    aiokafka's producer stays dead after OutOfOrderSequenceNumber (issue 1017), and with idempotence
    its batches never expire; so each call has its own time limit, and a limit that passes means
    *unknown*, not *failed*: the caller sends again, readers drop what comes twice.
    """

    def __init__(self, access: KafkaAccess, client_id: str) -> None:
        self._access = access
        self._client_id = client_id
        self._producer: Any = None
        self._lock = asyncio.Lock()

    async def publish(self, records: Sequence[OutRecord]) -> None:
        producer: Any = None
        problem: Exception | None = None
        acks: list[asyncio.Future[Any]] = []
        try:
            async with asyncio.timeout(ACK_SECONDS):
                producer = await self._connected()
                try:
                    for record in records:
                        acks.append(await self._send(producer, record))
                except KafkaError as error:
                    problem = error  # what was sent before is waited for all the same
                if acks:
                    # `await ack` would cancel the future itself when this call is cancelled.
                    await asyncio.wait(acks)
        except (KafkaError, OSError, TimeoutError) as error:
            problem = error
        done = list(itertools.takewhile(_is_acknowledged, acks))
        if len(done) < len(records):
            await self._drop(producer)
            refused = next((ack.exception() for ack in acks[len(done) :] if ack.done()), None)
            raise PublishFailed(len(done), repr(problem or refused)) from problem

    async def close(self) -> None:
        await self._drop(self._producer)

    async def _connected(self) -> Any:
        async with self._lock:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    client_id=self._client_id, **self._access.options(), **PRODUCER_OPTIONS
                )
                try:
                    await producer.start()
                except BaseException:
                    await _abandon(producer)
                    raise
                self._producer = producer
            return self._producer

    @staticmethod
    async def _send(producer: Any, record: OutRecord) -> asyncio.Future[Any]:
        # aiokafka asserts that one of them is there; a parked record may have neither.
        value = b"" if record.key is None and record.value is None else record.value
        ack: asyncio.Future[Any] = await producer.send(
            record.topic, value=value, key=record.key, headers=list(record.headers)
        )
        # An ack nobody awaits any more (after a time limit) must not be reported as lost.
        ack.add_done_callback(lambda done: done.cancelled() or done.exception())
        return ack

    async def _drop(self, producer: Any) -> None:
        """Only the one that failed: another call may have built its successor meanwhile."""
        if self._producer is producer:
            self._producer = None
        if producer is not None:
            await _abandon(producer)


def _is_acknowledged(ack: asyncio.Future[Any]) -> bool:
    return ack.done() and not ack.cancelled() and ack.exception() is None


async def _abandon(producer: Any) -> None:
    """Stop a producer that may never be able to flush: what it still holds is unknown."""
    # Else aiokafka's own flush waits for ever.
    producer._message_accumulator.fail_all(KafkaError("the producer was given up"))
    try:
        async with asyncio.timeout(2.0):
            await producer.stop()
    except (KafkaError, OSError, TimeoutError):
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
        self._topics = tuple(topics)
        self._options = {
            "group_id": group,
            "group_instance_id": member,
            "client_id": member,
            "max_poll_records": max_records,
            **access.options(),
            **CONSUMER_OPTIONS,
        }
        self._consumer: Any = None

    async def start(self) -> None:
        # One that was closed cannot be started again, so each attempt has its own.
        consumer = AIOKafkaConsumer(*self._topics, **self._options)
        try:
            async with asyncio.timeout(START_SECONDS):
                await consumer.start()
        except (KafkaError, OSError, TimeoutError) as error:
            await _close(consumer)
            raise TemporaryError(f"Kafka does not answer: {error!r}") from error
        except BaseException:
            await _close(consumer)
            raise
        self._consumer = consumer

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _close(consumer)

    async def poll(self, timeout_seconds: float) -> Mapping[Partition, Sequence[Record]]:
        batches = await self._consumer.getmany(timeout_ms=int(timeout_seconds * 1000))
        return {Partition(*tp): [_record(item) for item in items] for tp, items in batches.items()}

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
            raise TemporaryError("the consumer has not joined yet")
        partitions = [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in self._consumer.partitions_for_topic(topic) or ()
        ]
        try:
            ends = await self._consumer.end_offsets(partitions)
        except (KafkaError, OSError) as error:
            raise TemporaryError(f"Kafka does not answer: {error!r}") from error
        return {Partition(*tp): offset for tp, offset in ends.items()}


async def _close(consumer: Any) -> None:
    try:
        async with asyncio.timeout(5.0):
            await consumer.stop()
    except (KafkaError, OSError, TimeoutError) as error:
        log.warning("consumer did not close in order", error=repr(error))


def _record(item: Any) -> Record:
    return Record(
        topic=item.topic,
        partition=item.partition,
        offset=item.offset,
        timestamp_ms=item.timestamp,
        key=item.key,
        value=item.value,
        headers=tuple(item.headers),
    )
