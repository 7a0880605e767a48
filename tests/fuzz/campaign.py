"""Sends a seeded campaign of fuzz records through every codec, and says what became of them.

In: a platform, a number of records, a seed. Out: the position of every record that the broker took,
by kind. Beside the fuzz records go valid requests (`neighbours`), often in the same record batch;
each of them must be answered.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.topics import EVENTS_JOBS, Topic, parked_topic
from tests.fuzz.kinds import KINDS
from tests.fuzz.records import TYPES_OF_TOPIC, FuzzRecord

PREFIX = "drivetrain."
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
NEIGHBOUR_EVERY = 20
WINDOW = 100
# A large batch needs many of these; the campaign keeps them rare to stay quick.
RARE = {"value_of_900_kb": 0.1, "huge_header_name_of_nul": 0.1, "large_header_value": 0.1,
        "value_of_300_kib": 0.3, "very_long_text": 0.3}  # fmt: skip

Access = dict[str, Any]


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int


@dataclass
class Sent:
    """What the broker took. `neighbours` are the event ids of the valid requests."""

    positions: dict[Position, str] = field(default_factory=dict)
    neighbours: list[str] = field(default_factory=list)
    refused_by_broker: Counter[str] = field(default_factory=Counter)


def plan(num_records: int, seed: int) -> Iterable[tuple[str, FuzzRecord]]:
    """The records of a campaign; every kind occurs once before any occurs again."""
    random = Random(seed)
    topics = sorted(TYPES_OF_TOPIC)
    names: list[str] = []
    for _ in range(num_records):
        if not names:
            names = [name for name in KINDS if random.random() < RARE.get(name, 1.0)]
            random.shuffle(names)
        name = names.pop()
        yield name, KINDS[name](random, random.choice(topics))


async def send(access: dict[str, Access], num_records: int, seed: int) -> Sent:
    """`access` maps each topic to the connection options of a client that may write it."""
    random = Random(seed + 1)
    sent = Sent()
    producers: dict[tuple[str, str | None], AIOKafkaProducer] = {}
    pending: list[tuple[str, asyncio.Future[Any]]] = []
    try:
        for number, (name, record) in enumerate(plan(num_records, seed)):
            codec = random.choice(CODECS)
            producer = await _producer(producers, access[record.topic], codec)
            await _send(producer, name, record, sent, pending)
            if number % NEIGHBOUR_EVERY == 0:
                producer = await _producer(producers, access["commands.jobs"], codec)
                request_id = f"neighbour-{seed}-{number}"
                sent.neighbours.append(request_id)
                await _send(producer, "", neighbour(request_id), sent, pending)
            if len(pending) >= WINDOW:
                await _settle(pending, sent)
        await _settle(pending, sent)
    finally:
        for producer in producers.values():
            await producer.stop()
    return sent


def neighbour(request_id: str) -> FuzzRecord:
    """A valid request that is answered at once and starts nothing: its pool does not exist."""
    spec = {"name": "neighbour", "command": ["true"], "resources": {"pool": "none", "devices": 1}}
    headers: list[tuple[str, bytes | None]] = [
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_id", request_id.encode()),
        ("ce_source", b"/tests/fuzz"),
        ("ce_type", b"job.submit"),
    ]
    value = json.dumps({"request_id": request_id, "spec": spec}).encode()
    key = job_id_for("default", request_id).encode()
    return FuzzRecord("commands.jobs", key, value, headers)


async def _producer(
    producers: dict[tuple[str, str | None], AIOKafkaProducer], access: Access, codec: str | None
) -> AIOKafkaProducer:
    key = (access.get("sasl_plain_username", ""), codec)
    if key not in producers:
        # Batches of many records, so that malformed and valid ones share one.
        producers[key] = AIOKafkaProducer(
            compression_type=codec, linger_ms=5, max_batch_size=400_000,
            max_request_size=4_000_000, **access,
        )  # fmt: skip
        await producers[key].start()
    return producers[key]


async def _send(
    producer: AIOKafkaProducer,
    name: str,
    record: FuzzRecord,
    sent: Sent,
    pending: list[tuple[str, asyncio.Future[Any]]],
) -> None:
    value = b"" if record.key is None and record.value is None else record.value
    try:
        ack = await producer.send(
            PREFIX + record.topic,
            value=value,
            key=record.key,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
        )
    except KafkaError:
        sent.refused_by_broker[name] += 1
        return
    pending.append((name, ack))


async def _settle(pending: list[tuple[str, asyncio.Future[Any]]], sent: Sent) -> None:
    async with asyncio.timeout(60):
        await asyncio.wait([ack for _, ack in pending])
    for name, ack in pending:
        if ack.exception() is not None:
            sent.refused_by_broker[name] += 1
            continue
        found = ack.result()
        if name:
            sent.positions[Position(found.topic, found.partition, found.offset)] = name
    pending.clear()


async def parked_positions(access: Access, services: Iterable[str]) -> set[Position]:
    """Where the records lie that services have parked so far."""
    found = set()
    async for record in _read_all(access, [parked_topic(service) for service in services]):
        facts = dict(record.headers)
        # A client may have sent headers of these names; those of the service come last.
        found.add(
            Position(
                facts["x-parked-topic"].decode(),
                int(facts["x-parked-partition"]),
                int(facts["x-parked-offset"]),
            )
        )
    return found


async def answered_commands(access: Access) -> set[str]:
    """The event ids of the requests that were refused."""
    found = set()
    async for record in _read_all(access, [EVENTS_JOBS]):
        if dict(record.headers)["ce_type"] == b"job_request.rejected":
            found.add(json.loads(record.value)["command_event_id"])
    return found


async def _read_all(access: Access, topics: list[Topic]) -> AsyncIterator[Any]:
    """Every record up to the end that each topic has now."""
    # Not a seek: the first position, which is asked for meanwhile, may replace that of the seek.
    consumer = AIOKafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **access)
    await consumer.start()
    try:
        partitions = [
            TopicPartition(PREFIX + topic.name, number)
            for topic in topics
            for number in range(topic.partitions)
        ]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            while await consumer.position(partition) < end:
                for record in (await consumer.getmany(partition, timeout_ms=500)).get(
                    partition, []
                ):
                    yield record
    finally:
        await consumer.stop()
