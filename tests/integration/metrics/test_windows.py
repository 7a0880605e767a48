"""Live windows: the Faust process on the real broker, killed under load, gives the same windows."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import run_id_for
from services.metrics.core.windows import Source
from services.metrics.settings import MetricsSettings
from services.metrics.windows import app as windows_app
from services.metrics.windows import process as windows_process
from services.metrics.windows import records
from services.metrics.windows.folding import observe
from services.metrics.windows.records import SourceState
from services.runtime.kafka_access import KafkaAccess
from services.runtime.run_tokens import RunTokens
from services.runtime.topics import create_topics
from tests.events import make_event
from tests.handlers.metrics.builders import make_heartbeat, make_samples
from tests.platform_service import produce, read_topic, service_environment

JOBS = ["job_" + letter * 26 for letter in "abcdefgh"]


def job_events(job_id: str, batch: int) -> list[Event[Any]]:
    """One batch of rank 0 and one heartbeat of its pod."""
    samples = {"loss": {batch * 10 + step: 1.0 / (batch * 10 + step + 1) for step in range(10)}}
    return [
        make_event(make_samples(samples, job_id=job_id, run_id=run_id_for(job_id, 1), batch=batch)),
        make_event(make_heartbeat(job_id=job_id, step=batch * 10 + 9)),
    ]


@asynccontextmanager
async def windows_running(settings: MetricsSettings) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *windows_process.COMMAND,
        stdin=asyncio.subprocess.PIPE,
        env=windows_process.environment_of(settings, os.environ),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def expected_sources(kafka: KafkaAccess, prefix: str, num: int) -> dict[bytes, Source]:
    """What the records on both topics give, folded here, without Faust."""
    states: dict[bytes, SourceState] = {}
    for topic in ("metrics", "reports"):
        for record in await read_topic(kafka, prefix + topic, at_least=num):
            if observation := observe(RunTokens(None), record):
                states[observation.key] = observation.fold(states.get(observation.key))
    return {key: state.source for key, state in states.items()}


async def written_sources(kafka: KafkaAccess, prefix: str, wanted: dict[bytes, Source]) -> None:
    """Until the newest record of every source is as wanted."""
    async with asyncio.timeout(60):
        num = len(wanted)
        while True:
            found: dict[bytes, Source] = {}
            for record in await read_topic(kafka, f"{prefix}windows", at_least=num, seconds=60):
                assert record.key is not None
                assert record.value is not None
                found[record.key] = records.read(record.value).source
            if found == wanted:
                return
            await asyncio.sleep(0.5)


@pytest.mark.timeout(240)
@pytest.mark.heavy
async def test_windows_are_the_same_after_the_process_is_killed_under_load(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    await create_topics(kafka, topic_prefix)
    given = MetricsSettings(**service_environment(kafka, postgres_dsn, topic_prefix))
    sent: list[Event[Any]] = []
    for kill in range(2):
        async with windows_running(given) as process:
            for batch in range(kill * 20, kill * 20 + 20):
                new = [event for job_id in JOBS for event in job_events(job_id, batch)]
                await produce(kafka, topic_prefix, *new, *sent[-16:])  # some arrive twice
                sent += new
            await read_topic(kafka, f"{topic_prefix}windows", at_least=len(JOBS) * 2, seconds=60)
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with windows_running(given) as process:
        wanted = await expected_sources(kafka, topic_prefix, len(sent) // 2)
        assert len(wanted) == 2 * len(JOBS)
        await written_sources(kafka, topic_prefix, wanted)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.timeout(120)
async def test_the_process_ends_with_the_service_that_started_it(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    await create_topics(kafka, topic_prefix)
    given = MetricsSettings(**service_environment(kafka, postgres_dsn, topic_prefix))
    async with windows_running(given) as process:
        await produce(kafka, topic_prefix, *job_events(JOBS[0], 0))
        await read_topic(kafka, f"{topic_prefix}windows", at_least=2, seconds=60)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.parametrize("ends", ["its input", "SIGTERM"])
async def test_it_ends_although_kafka_answers_nothing(
    postgres_dsn: str, topic_prefix: str, ends: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kafka = KafkaAccess(f"127.0.0.1:{silent.getsockname()[1]}", "user", "password")
        given = MetricsSettings(**service_environment(kafka, postgres_dsn, topic_prefix))
        async with windows_running(given) as process:
            connection, _ = await asyncio.wait_for(asyncio.to_thread(silent.accept), 60)
            with connection:
                if ends == "SIGTERM":
                    process.terminate()
                else:
                    assert process.stdin is not None
                    process.stdin.close()
                assert await asyncio.wait_for(process.wait(), 30) == 0


def test_faust_does_not_watch_the_topic_of_its_table() -> None:
    """It would report an error a second from the fifth minute on: nothing is read from there."""
    nowhere = service_environment(KafkaAccess("127.0.0.1:1"), "postgresql://", "")
    app, _ = windows_app.build(MetricsSettings(**nowhere))
    assert app.conf.stream_processing_timeout > 365 * 86_400
