"""The embedded broker: authentication, and recovery after `kill -9`."""

import asyncio
import gc
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError

from services.runtime.kafka_access import KafkaAccess
from services.standalone.embedded import RunningKafka, running_kafka
from services.standalone.kafka import KafkaConnection, answers_metadata


def access_of(kafka: RunningKafka) -> dict[str, str]:
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka.username,
        "sasl_plain_password": kafka.password,
    }


async def write_records(kafka: RunningKafka, topic: str, num_records: int) -> None:
    admin = AIOKafkaAdminClient(**access_of(kafka))
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    async with AIOKafkaProducer(**access_of(kafka), acks="all") as producer:
        for number in range(num_records):
            await producer.send(topic, str(number).encode())
        await producer.flush()


async def read_records(kafka: RunningKafka, topic: str, num_records: int) -> list[int]:
    consumer = AIOKafkaConsumer(**access_of(kafka), auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    try:
        return [int((await consumer.getone()).value) for _ in range(num_records)]
    finally:
        await consumer.stop()


@pytest.mark.heavy
async def test_acknowledged_records_survive_kill_9_of_the_broker(tmp_path: Path) -> None:
    async with running_kafka(tmp_path / "kafka", password="only-for-the-owner") as kafka:
        await write_records(kafka, "kept", 500)
        first_pid = kafka.child.pid
        await kafka.child.kill_and_wait_ready()
        assert kafka.child.pid != first_pid
        assert await read_records(kafka, "kept", 500) == list(range(500))
    assert_secret_is_private(tmp_path / "kafka", b"only-for-the-owner")


def assert_secret_is_private(directory: Path, secret: bytes) -> None:
    """The broker needs the password in a file; nobody else may read any that holds it."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    holding = [path for path in files if secret in path.read_bytes()]
    assert holding
    assert {path.stat().st_mode & 0o077 for path in holding} == {0}


@pytest.mark.parametrize(
    ("username", "password"),
    [
        pytest.param("drivetrain", "wrong", id="wrong password"),
        pytest.param("somebody", None, id="unknown user"),
        pytest.param("drivetrain", "", id="no password"),
    ],
)
async def test_a_client_without_the_credentials_is_refused(
    kafka: KafkaAccess, username: str, password: str | None
) -> None:
    right = KafkaConnection(kafka.bootstrap_servers, kafka.username or "", kafka.password or "")
    wrong = KafkaConnection(
        kafka.bootstrap_servers, username, right.password if password is None else password
    )
    assert await answers_metadata(right)
    assert not await answers_metadata(wrong)


async def test_a_probe_that_is_cancelled_at_any_point_leaves_no_connection(
    kafka: KafkaAccess,
) -> None:
    """A connection that nobody closed warns when it is collected, and warnings are errors here."""
    right = KafkaConnection(kafka.bootstrap_servers, kafka.username or "", kafka.password or "")
    num_turns, found = 0, None
    while found is None:
        num_turns += 1 + num_turns // 8
        probe = asyncio.create_task(answers_metadata(right))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        found = probe.result() if probe.done() else None
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)
    assert found
    gc.collect()


async def test_a_client_that_does_not_authenticate_is_refused(kafka: KafkaAccess) -> None:
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers, request_timeout_ms=3000)
    with pytest.raises(KafkaConnectionError):
        await client.bootstrap()
    await client.close()
