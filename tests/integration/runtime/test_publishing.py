"""The outbox on a real broker: what is unavailable or refused stops nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.producer.sender import SendProduceReqHandler

from services.runtime import kafka_publisher
from services.runtime.bus import OutRecord, PublishFailed
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.relay import Relay
from services.standalone.embedded import RunningKafka, running_kafka
from tests.conftest import OpenDatabase
from tests.platform_service import read_topic

NUM_KEYS = 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningKafka]:
    """A broker of this module's own, to be killed."""
    async with running_kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def access(broker: RunningKafka) -> KafkaAccess:
    return KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)


async def create(access: KafkaAccess, *topics: str) -> None:
    admin = AIOKafkaAdminClient(**access.options())
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in topics])
    finally:
        await admin.close()


@asynccontextmanager
async def relaying(database: Database, access: KafkaAccess) -> AsyncIterator[None]:
    publisher = KafkaPublisher(access, "tests")
    task = asyncio.create_task(Relay(database, publisher, SystemClock()).run())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await publisher.close()


async def write(database: Database, *records: OutRecord) -> None:
    async with database.transaction() as tx:
        for record in records:
            tx.forward(record.topic, record)


def is_waiting(database: Database, want: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        async with database.connection() as connection:
            count = "select count(*) from outbox where refused_at is null"
            return bool(await connection.fetchval(count) == want)

    return check


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.05)


async def test_a_topic_that_is_missing_costs_the_others_nothing(
    access: KafkaAccess,
    database: OpenDatabase,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 1.0)
    there, missing = f"{topic_prefix}there", f"{topic_prefix}missing"
    await create(access, f"drivetrain.{there}")
    db = await database("cost")
    for number in range(NUM_KEYS):
        value = b"%d" % number
        await write(db, OutRecord(missing, value, value), OutRecord(there, value, value))
    async with relaying(db, access):
        await until(is_waiting(db, NUM_KEYS))
        for number in range(NUM_KEYS):
            await write(db, OutRecord(there, b"later", b"%d" % number))
            await until(is_waiting(db, NUM_KEYS))
        await create(access, f"drivetrain.{missing}")
        await until(is_waiting(db, 0))
    assert len(await read_topic(access, f"drivetrain.{missing}", at_least=NUM_KEYS)) == NUM_KEYS


async def test_a_record_that_the_broker_refuses_is_set_aside_and_its_key_continues(
    access: KafkaAccess, database: OpenDatabase, topic_prefix: str
) -> None:
    """Once by our own client (over 2 MB) and once by the broker (over the topic's limit)."""
    topic = f"{topic_prefix}refusing"
    await create(access, f"drivetrain.{topic}")
    db = await database("cost")
    sizes = (1, 2_500_000, 1, 1_500_000, 1)
    await write(db, *(OutRecord(topic, b"k", b"x" * size) for size in sizes))
    async with relaying(db, access):
        await until(is_waiting(db, 0))
        await write(db, OutRecord(topic, b"k", b"last"))
        await until(is_waiting(db, 0))
    async with db.connection() as connection:
        refused = await connection.fetch("select * from outbox order by id")
    assert [len(row["value"]) for row in refused] == [2_500_000, 1_500_000]
    assert all("TooLarge" in row["refusal"] for row in refused)
    records = await read_topic(access, f"drivetrain.{topic}", at_least=4)
    assert [record.value for record in records][-1] == b"last"
    assert {record.value for record in records} == {b"x", b"last"}


async def publish_until_acknowledged(publisher: KafkaPublisher, records: list[OutRecord]) -> None:
    while True:
        try:
            await publisher.publish(records)
            return
        except PublishFailed:
            await asyncio.sleep(0.2)


@pytest.mark.heavy
async def test_a_broker_killed_under_load_ends_no_publisher(
    broker: RunningKafka,
    access: KafkaAccess,
    topic_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch given up while it waits to be sent again ends aiokafka's sender with a KeyError."""
    monkeypatch.setattr(kafka_publisher, "ACK_SECONDS", 1.0)
    topic = f"{topic_prefix}killed"
    await create(access, topic)
    publisher = KafkaPublisher(access, "tests")
    stopping = asyncio.Event()
    written: set[bytes] = set()

    async def write_on(writer: int) -> None:
        number = 0
        while not stopping.is_set():
            values = [b"%d-%d" % (writer, number + index) for index in range(50)]
            number += len(values)
            records = [OutRecord(topic, b"%d" % (writer % 3), value) for value in values]
            await publish_until_acknowledged(publisher, records)
            written.update(values)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for writer in range(6):
            group.create_task(write_on(writer))
        for _ in range(3):
            before = len(written)
            broker.child.kill()
            async with asyncio.timeout(60):
                while len(written) < before + 600:
                    await asyncio.sleep(0.05)
        stopping.set()
    await publisher.close()
    # Batches that were sent twice are there twice: read on until all were seen, or none is left.
    missing, num_read = written, len(written) - 1
    while missing:
        records = await read_topic(access, topic, at_least=num_read + 1)
        missing, num_read = written - {record.value for record in records}, len(records)


async def test_a_sender_that_fails_with_any_exception_is_replaced(
    access: KafkaAccess, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{topic_prefix}dying"
    await create(access, topic)
    publisher = KafkaPublisher(access, "tests")

    async def die(handler: SendProduceReqHandler, node_id: int) -> None:
        raise KeyError("batch")

    with monkeypatch.context() as patched:
        patched.setattr(SendProduceReqHandler, "do", die)
        with pytest.raises(PublishFailed):
            await publisher.publish([OutRecord(topic, b"k", b"0")])
    await publisher.publish([OutRecord(topic, b"k", b"1")])
    await publisher.close()
    assert [it.value for it in await read_topic(access, topic, at_least=1)] == [b"1"]
