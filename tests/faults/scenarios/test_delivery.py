"""Records that come again, requests that come again."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from drivetrain_schemas.topics import TOPICS
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

pytestmark = pytest.mark.timeout(900)
ECHO = "x-echo"


async def republish(platform: StandalonePlatform, stop: threading.Event, counts: list[int]) -> None:
    """Send every record of every topic once more, 0-2 s later, with the same bytes and ids."""
    kafka = platform.connection["kafka"]
    options = {
        "bootstrap_servers": kafka["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka["username"],
        "sasl_plain_password": kafka["password"],
    }
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


def test_every_record_comes_twice(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    with republisher(platform) as counts:
        job = submit()
        job.wait_final()
    assert counts[0] > 100
    check_all(job, attempts=1)


def test_the_same_request_twenty_times_is_one_job(
    platform: StandalonePlatform, reference: object, check_all: CheckAll
) -> None:
    jobs = [TrainingJob.submit(platform, "twenty-times") for _ in range(20)]
    assert len({job.job_id for job in jobs}) == 1
    check_all(jobs[0], attempts=1)
    with platform.client() as client:
        listed = client.get("/v1/jobs", params={"limit": 500}).json()["jobs"]
    assert [item["job_id"] for item in listed].count(jobs[0].job_id) == 1
