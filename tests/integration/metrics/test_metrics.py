"""The metrics service on the real broker and the real Postgres: records in, HTTP and alerts out."""

import asyncio
import socket
from typing import Any

import asyncpg
import httpx
import pytest

from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import AlertRaised
from services.metrics.settings import MetricsSettings
from services.metrics.wiring import build
from services.runtime.bus import OutRecord
from services.runtime.errors import ConfigurationError
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.service import Running
from services.runtime.topics import create_topics
from tests.events import make_event
from tests.handlers.metrics.builders import JOB, make_heartbeat, make_logs, make_samples
from tests.platform_service import (
    READ_TOKEN,
    produce,
    read_events,
    read_topic,
    running,
    service_environment,
)


async def settings(kafka: KafkaAccess, dsn: str, prefix: str) -> MetricsSettings:
    """Topics of this test alone, and a schema dropped first."""
    await create_topics(kafka, prefix)
    connection = await asyncpg.connect(dsn)
    await connection.execute("drop schema if exists metrics cascade")
    await connection.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return MetricsSettings(**service_environment(kafka, dsn, prefix), http_port=port)


async def answer(
    given: MetricsSettings, path: str, wanted: Any, *, at: str, **query: Any
) -> dict[str, Any]:
    """Ask until the field `at` of the answer is as wanted."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{given.http_port}",
        headers={"Authorization": f"Bearer {READ_TOKEN}"},
    ) as client:
        async with asyncio.timeout(30):
            while True:
                found = (await client.get(path, params={"job_id": JOB, **query})).json()
                if found[at] == wanted:
                    return found
                await asyncio.sleep(0.05)


async def until_merged(dsn: str, *, at_most: int) -> None:
    """Until the service has added new chunks to the levels, and merged small ones."""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(60):
            while await connection.fetchval("select count(*) from metrics.chunks") > at_most:
                await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def test_samples_and_logs_sent_twice_across_a_restart_are_there_once(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    given = await settings(kafka, postgres_dsn, topic_prefix)
    batches = [
        make_event(make_samples({"loss": {step: 1 / (step + 1)}}, batch=step)) for step in range(50)
    ]
    lines = [make_event(make_logs([f"line {n}"], batch=n, first_line=n)) for n in range(20)]
    last = make_event(make_logs(["end"], batch=20, first_line=20))
    await produce(kafka, topic_prefix, *batches, *batches[:10], *lines)
    async with running(build(given)):
        await answer(given, "/logs", 20, at="num_lines")
    async with running(build(given)):
        await produce(kafka, topic_prefix, *batches, *lines, last)
        page = await answer(given, "/logs", 21, at="num_lines")
        loss = {
            "name": "loss",
            "num_samples": 50,
            "first_step": 0,
            "last_step": 49,
            "last_value": 1 / 50,
        }
        await answer(given, "/series", [loss], at="series")
        await until_merged(postgres_dsn, at_most=49)
    assert [line["line"] for line in page["lines"]] == [f"line {n}" for n in range(20)] + ["end"]


async def test_a_flood_is_cut_so_that_the_run_behind_it_does_not_wait(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    """All are of one partition, where records are stored in their order. The flood is counted."""
    given = await settings(kafka, postgres_dsn, topic_prefix)
    given = given.model_copy(
        update={
            "max_samples_per_second_of_run": 1000,
            "max_log_bytes_per_second_of_run": 64 * 1024,
        }
    )
    calm, num_batches, num_samples = await same_partition(kafka, topic_prefix), 120, 1000
    line = "x" * 8000
    flood = [
        make_event(make_samples({"loss": dict.fromkeys(range(n, n + num_samples), 0.5)}, batch=n))
        for n in range(num_batches)
    ]
    lines = [
        make_event(make_logs([line] * 4, batch=n, first_line=4 * n)) for n in range(num_batches)
    ]
    own = [
        make_event(make_samples({"loss": {1: 0.5}}, job_id=calm)),
        make_event(make_logs(["here"], job_id=calm)),
    ]
    await produce(kafka, topic_prefix, *flood, *lines, *own)
    async with running(build(given)):
        await answer(given, "/logs", 1, at="num_lines", job_id=calm)
        found = await answer(given, "/series", 1, at="num_series", job_id=calm)
        assert (found["series"][0]["num_samples"], found["num_samples_left_out"]) == (1, 0)
        found = await answer(given, "/series", 1, at="num_series")
        stored, left_out = found["series"][0]["num_samples"], found["num_samples_left_out"]
        assert stored + left_out == num_batches * num_samples
        assert left_out > stored
        page = await answer(given, "/logs", JOB, at="job_id", tail=1)
        num_bytes = page["num_lines"] * len(line) + page["num_dropped_bytes"]
        assert abs(num_bytes - num_batches * 4 * len(line)) <= num_batches * 3, "but for line ends"
        assert page["num_dropped_bytes"] > page["num_lines"] * len(line)


async def same_partition(kafka: KafkaAccess, prefix: str) -> str:
    """A job whose first run is in the partition of that of `JOB`, on both topics."""
    jobs = ["job_" + letter * 26 for letter in "abcdefgh"]
    await produce(
        kafka, prefix, *(make_event(make_heartbeat(job_id=job_id)) for job_id in (JOB, *jobs))
    )
    records = await read_topic(kafka, f"{prefix}reports", at_least=1 + len(jobs))
    partitions = {record.key: record.partition for record in records}
    at = partitions[run_id_for(JOB, 1).encode()]
    return next(job for job in jobs if partitions[run_id_for(job, 1).encode()] == at)


async def test_garbage_is_parked_with_its_bytes_and_alerts_go_out(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    given = await settings(kafka, postgres_dsn, topic_prefix)
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish([OutRecord(f"{topic_prefix}metrics", b"k", b"\xff garbage", ())])
    await publisher.close()
    await produce(
        kafka,
        topic_prefix,
        make_event(make_samples({"loss": {3: "nan"}})),
        make_event(make_heartbeat(num_dropped_samples=5)),
    )
    async with running(build(given)):
        alerts = await read_events(kafka, f"{topic_prefix}events.alerts", at_least=2)
        (parked,) = await read_topic(kafka, f"{topic_prefix}parked.metrics", at_least=1)
    assert parked.value == b"\xff garbage"
    payloads = [alert.payload for alert in alerts]
    assert {one.alert for one in payloads if isinstance(one, AlertRaised)} == {
        "not_finite",
        "samples_dropped",
    }


async def test_the_read_port_answers_the_gateway_only(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    given = await settings(kafka, postgres_dsn, topic_prefix)
    known = {"Authorization": f"Bearer {READ_TOKEN}"}
    url = f"http://127.0.0.1:{given.http_port}/series?job_id={JOB}"
    async with running(build(given)), httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(url, headers=known)).status_code == 200
        assert (await client.get(url)).status_code == 401
        assert (await client.get(url, headers=known | {"Host": "evil.example"})).status_code == 421


def test_a_read_port_without_a_token_does_not_start(kafka: KafkaAccess, postgres_dsn: str) -> None:
    environment = service_environment(kafka, postgres_dsn, "unused.") | {"read_token": None}
    with pytest.raises(ConfigurationError, match="DRIVETRAIN_READ_TOKEN"):
        Running(build(MetricsSettings(**environment)), asyncio.Event())
