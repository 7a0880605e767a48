"""Repeated records and repeated requests."""

import asyncio
import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from drivetrain_schemas.envelope import encode
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSpec, JobSubmit
from drivetrain_schemas.topics import COMMANDS_JOBS, TOPICS
from tests.events import make_event
from tests.faults import evidence
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

pytestmark = pytest.mark.timeout(900)
ECHO = "x-echo"


def kafka_options(platform: StandalonePlatform) -> dict[str, Any]:
    kafka = platform.admin["kafka"]
    return {
        "bootstrap_servers": kafka["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka["username"],
        "sasl_plain_password": kafka["password"],
    }


async def republish(platform: StandalonePlatform, stop: threading.Event, counts: list[int]) -> None:
    """Send every record of every topic once more, 0-2 s later, with the same bytes and ids."""
    options = kafka_options(platform)
    topics = [f"drivetrain.{topic.name}" for topic in TOPICS]
    consumer = AIOKafkaConsumer(*topics, auto_offset_reset="latest", group_id=None, **options)
    producer = AIOKafkaProducer(**options)
    await consumer.start()
    await producer.start()
    dice = random.Random(1)
    echoes: set[asyncio.Task[None]] = set()

    async def echo(record) -> None:
        await asyncio.sleep(dice.uniform(0, 2))
        headers = [*record.headers, (ECHO, b"1")]
        await producer.send_and_wait(
            record.topic, value=record.value, key=record.key, headers=headers
        )
        counts[0] += 1

    try:
        while not stop.is_set():
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                for record in batch:
                    if (ECHO, b"1") not in record.headers:
                        task = asyncio.create_task(echo(record))
                        echoes.add(task)
                        task.add_done_callback(echoes.discard)
        await asyncio.gather(*echoes)
    finally:
        await producer.stop()
        await consumer.stop()


@contextmanager
def republisher(platform: StandalonePlatform) -> Iterator[list[int]]:
    stop, counts = threading.Event(), [0]
    thread = threading.Thread(target=lambda: asyncio.run(republish(platform, stop, counts)))
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join()


def test_every_record_is_delivered_twice(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    with republisher(platform) as counts:
        job = submit()
        job.wait_final()
    assert counts[0] > 100
    check_all(job, attempts=1)


async def send_commands(platform: StandalonePlatform, command: JobSubmit, number: int) -> None:
    """The command itself, each time with a new event id, all at once."""
    async with AIOKafkaProducer(**kafka_options(platform)) as producer:
        acks = []
        for _ in range(number):
            headers, key, value = encode(make_event(command))
            topic = f"drivetrain.{COMMANDS_JOBS.name}"
            acks.append(await producer.send(topic, value=value, key=key, headers=headers))
        await asyncio.gather(*acks)


def test_the_same_request_twenty_times_by_each_interface_is_one_job(
    platform: StandalonePlatform, reference: object, check_all: CheckAll
) -> None:
    """Twenty commands on Kafka and twenty posts, concurrently."""
    request_id = f"twenty-times-{secrets.token_hex(4)}"
    spec = JobSpec.model_validate(TrainingJob.spec(platform, request_id))
    job_id = job_id_for("default", request_id)
    command = JobSubmit(request_id=request_id, spec=spec, job_id=job_id)
    with ThreadPoolExecutor(20) as executor:
        posted = [executor.submit(TrainingJob.submit, platform, request_id) for _ in range(20)]
        asyncio.run(send_commands(platform, command, 20))
        assert {each.result().job_id for each in posted} == {job_id}
    check_all(TrainingJob(platform, job_id), attempts=1)
    with platform.client() as client:
        listed = client.get("/v1/jobs", params={"limit": 500}).json()["jobs"]
    assert [item["job_id"] for item in listed].count(job_id) == 1
    events = asyncio.run(evidence.read_raw(platform))
    about = Counter(event.type for event in events if event.key == job_id)
    assert about["job_request.rejected"] == 0
    assert (about["job.queued"], about["allocation.granted"]) == (1, 1)
