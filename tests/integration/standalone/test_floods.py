"""What one pod writes without end: the others' records move, and the broker's disk is bounded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from drivetrain_schemas.access import POD
from drivetrain_schemas.topics import METRICS, Topic
from services.runtime import topics
from services.runtime.access.acls import wanted_acls
from services.runtime.access.kafka import Refused, apply_acls
from services.runtime.access.quotas import apply_quotas, wanted_quotas
from services.runtime.kafka_access import KafkaAccess
from services.standalone import kafka as broker
from services.standalone.embedded import running_kafka

MIB = 1024**2
PREFIX = "flood."
BYTES_PER_SECOND = 1.0 * MIB
KEPT_BYTES = 4 * MIB
NUM_PARTITIONS = 2
SMALL = replace(METRICS, retention_bytes=KEPT_BYTES, partitions=NUM_PARTITIONS)
# What is kept, the segment being written, and what comes in while deleted segments are removed: a
# look each second, a delay of a second, and as much again for a busy machine.
KEPT_BOUND_BYTES = NUM_PARTITIONS * (KEPT_BYTES + MIB) + 8 * BYTES_PER_SECOND
# A broker first looks 30 s after its start, and a quota is the mean of 11 s.
BOUND_BYTES = KEPT_BOUND_BYTES + (30 + 11) * BYTES_PER_SECOND
OTHERS_RECORDS = 20


@pytest.fixture
async def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KafkaAccess]:
    monkeypatch.setattr(topics, "TOPICS", (SMALL,))
    monkeypatch.setattr(broker, "RETENTION_CHECK_MS", 1000)
    async with running_kafka(tmp_path / "kafka", users={POD: "secret"}) as kafka:
        access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
        await topics.create_topics(access, PREFIX)
        await apply_acls(access, wanted_acls(PREFIX))
        yield access


def bytes_on_disk(directory: Path, topic: Topic) -> int:
    total = 0
    for path in directory.glob(f"kafka/data/{PREFIX}{topic.name}-*/*.log*"):
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            total += path.stat().st_size
    return total


async def flood(access: KafkaAccess) -> None:
    options = {**access.options(), "max_batch_size": 512 * 1024}
    async with AIOKafkaProducer(**options, client_id="hostile") as producer:
        while True:
            await producer.send(PREFIX + METRICS.name, b"x" * 100_000)


@pytest.mark.heavy
async def test_a_flood_of_one_pod_leaves_room_on_disk_and_for_the_others(
    admin: KafkaAccess, tmp_path: Path
) -> None:
    limits = {POD: {**wanted_quotas()[POD], "producer_byte_rate": BYTES_PER_SECOND}}
    assert await apply_quotas(admin, limits) == limits
    pod = replace(admin, username=POD, password="secret")
    topic = PREFIX + METRICS.name
    floods = [asyncio.create_task(flood(pod)) for _ in range(3)]
    largest = 0
    try:
        async with (
            asyncio.timeout(180),
            AIOKafkaProducer(**pod.options(), client_id="other") as other,
            AIOKafkaConsumer(topic, **admin.options(), auto_offset_reset="earliest") as reader,
        ):
            ours: set[bytes] = set()
            sent: list[bytes] = []
            partitions = reader.assignment()
            while len(ours) < OTHERS_RECORDS or not (
                all((await reader.beginning_offsets(list(partitions))).values())
                and bytes_on_disk(tmp_path, METRICS) < KEPT_BOUND_BYTES
            ):
                sent.append(str(len(sent)).encode())
                await other.send_and_wait(topic, sent[-1], key=b"other")
                for records in (await reader.getmany(timeout_ms=100)).values():
                    ours |= {record.value for record in records if record.key == b"other"}
                largest = max(largest, bytes_on_disk(tmp_path, METRICS))
                assert not any(task.done() for task in floods)
    finally:
        for task in floods:
            task.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
    assert KEPT_BYTES < largest < BOUND_BYTES


async def test_a_quota_of_the_operator_stays_and_pods_cannot_set_one(admin: KafkaAccess) -> None:
    mine = {POD: {"producer_byte_rate": 5.0}}
    assert await apply_quotas(admin, mine) == mine
    async with asyncio.timeout(30):
        while "producer_byte_rate" in (missing := await apply_quotas(admin, wanted_quotas()))[POD]:
            await asyncio.sleep(0.05)
    assert set(missing[POD]) == {"request_percentage"}
    pod = replace(admin, username=POD, password="secret")
    with pytest.raises(Refused):
        await apply_quotas(pod, wanted_quotas())
