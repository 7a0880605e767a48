"""What one pod writes without end: the others' records move, and the broker's disk is bounded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from drivetrain.pod.events import OutRecord
from drivetrain.pod.telemetry import Telemetry
from drivetrain_schemas.access import POD, POD_CLIENTS, QUOTAS, Limited, pod_client
from drivetrain_schemas.pods import KafkaAccess as PodKafkaAccess
from drivetrain_schemas.topics import METRICS, Topic
from services.runtime import topics
from services.runtime.access.acls import wanted_acls
from services.runtime.access.kafka import Refused, apply_acls
from services.runtime.access.quotas import Quotas, apply_quotas, wanted_quotas
from services.runtime.kafka_access import KafkaAccess
from services.standalone import kafka as broker
from services.standalone.embedded import running_kafka

MIB = 1024**2
PODS = Limited(POD)
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
    limits = {PODS: {**QUOTAS[PODS], "producer_byte_rate": BYTES_PER_SECOND}}
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


def pod_of(admin: KafkaAccess, client_id: str) -> PodKafkaAccess:
    return PodKafkaAccess(
        bootstrap_servers=admin.bootstrap_servers,
        topic_prefix=PREFIX,
        client_id=client_id,
        username=POD,
        password="secret",
    )


@contextlib.asynccontextmanager
async def sending(*accesses: PodKafkaAccess) -> AsyncIterator[list[Telemetry]]:
    senders = [Telemetry(access) for access in accesses]
    for sender in senders:
        sender.start()
    try:
        yield senders
    finally:
        await asyncio.gather(*(sender.close() for sender in senders))


async def send(sender: Telemetry, num_records: int, size: int = 10) -> None:
    """One after the other, each acknowledged before the next is sent."""
    for _ in range(num_records):
        assert sender.put(OutRecord(PREFIX + METRICS.name, b"run", b"x" * size, []))
        assert await sender.flush(60)


async def throttled(admin: KafkaAccess, limits: Quotas, *flooding: PodKafkaAccess) -> None:
    """Limits of 1 KiB a second that are in force, and owed many minutes of it."""
    assert await apply_quotas(admin, limits) == limits
    async with asyncio.timeout(60):
        while await apply_quotas(admin, limits):
            await asyncio.sleep(0.05)
    async with sending(*flooding) as senders:
        for sender in senders:
            await send(sender, 1, size=200_000)


async def test_a_job_that_floods_holds_up_no_job_of_another_share(admin: KafkaAccess) -> None:
    hostile, fair = (pod_of(admin, pod_client(job_id)) for job_id in ("job_a", "job_b"))
    few = {**QUOTAS[PODS], "producer_byte_rate": 1024.0}
    await throttled(
        admin,
        {**QUOTAS, PODS: few, Limited(POD, hostile.client_id): few},
        *(hostile, pod_of(admin, "any")),
    )
    async with sending(fair, hostile, pod_of(admin, "any-other")) as senders:
        # Those held up get one record into each new connection, that is, each ten seconds.
        tasks = [asyncio.create_task(send(senders[0], 20))]
        tasks += [asyncio.create_task(send(sender, 5)) for sender in senders[1:]]
        first, held_up = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in held_up:
            task.cancel()
        await asyncio.gather(*held_up, return_exceptions=True)
    assert first == {tasks[0]}
    await tasks[0]


def test_jobs_are_divided_among_all_shares() -> None:
    assert {pod_client(f"job_{number}") for number in range(200)} == set(POD_CLIENTS)


async def test_a_quota_of_the_operator_stays_and_pods_cannot_set_one(admin: KafkaAccess) -> None:
    share = Limited(POD, POD_CLIENTS[0])
    mine = {PODS: {"producer_byte_rate": 5.0}, share: {"request_percentage": 5.0}}
    assert await apply_quotas(admin, mine) == mine
    async with asyncio.timeout(30):
        while await apply_quotas(admin, mine):
            await asyncio.sleep(0.05)
    missing = await apply_quotas(admin, wanted_quotas())
    assert set(missing[PODS]) == {"request_percentage"}
    assert set(missing[share]) == {"producer_byte_rate"}
    assert missing.keys() == QUOTAS.keys()
    pod = replace(admin, username=POD, password="secret")
    with pytest.raises(Refused):
        await apply_quotas(pod, wanted_quotas())
