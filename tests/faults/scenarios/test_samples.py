"""kill -9 of the metrics service, of Postgres and of the broker under load: after the restarts, the
same samples and the same live windows as without.
"""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer

from drivetrain_schemas.envelope import Event
from services.metrics.windows.folding import observe
from services.metrics.windows.records import SourceState
from services.runtime.kafka_access import KafkaAccess
from services.runtime.run_tokens import RunTokens
from services.runtime.stores import initialise
from services.runtime.topics import create_topics
from services.standalone.embedded import running_kafka, running_postgres
from services.standalone.ports import free_port
from tests.events import make_event
from tests.handlers.metrics.builders import JOB, make_heartbeat, make_samples
from tests.killable_service import killable_service
from tests.platform_service import READ_TOKEN, produce_patiently, read_topic, service_environment

pytestmark = pytest.mark.timeout(600)

PREFIX = "faults."
NUM_BATCHES = 600
SAMPLES_PER_BATCH = 200
NAMES = ("loss", "rate", "norm")


async def answer(port: int, path: str, **query: Any) -> Any:
    """What the service answers, however long it needs to come back."""
    headers = {"Authorization": f"Bearer {READ_TOKEN}"}
    address = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=address, headers=headers, trust_env=False) as client:
        while True:
            try:
                answer = await client.get(path, params={"job_id": JOB, **query})
                if answer.status_code == 200:
                    return answer.json()
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


def batches() -> list[tuple[Event[Any], dict[int, Any]]]:
    """Each of one series, with its samples: out of order, some not finite, steps repeated."""
    made = []
    for number in range(NUM_BATCHES):
        rng = random.Random(number)
        first = number // len(NAMES) * (SAMPLES_PER_BATCH - 10)  # the last ten are logged again
        steps = list(range(first, first + SAMPLES_PER_BATCH))
        rng.shuffle(steps)
        values: dict[int, Any] = {step: number + step / 7 for step in steps}
        values[steps[0]] = rng.choice(["nan", "inf", "-inf"])
        made.append((make_event(make_samples({NAMES[number % 3]: values}, batch=number)), values))
    return made


async def produce_all(access: KafkaAccess, events: list[Event[Any]], sent: asyncio.Event) -> None:
    for start in range(0, len(events), 10):
        heartbeat = make_event(make_heartbeat(step=start + 1))
        await produce_patiently(access, PREFIX, *events[start : start + 10], heartbeat)
        if start % 50 == 0:
            await produce_patiently(access, PREFIX, *events[start : start + 5])  # once more
    sent.set()


async def num_stored(dsn: str) -> int:
    """0 while Postgres does not answer."""
    try:
        connection = await asyncpg.connect(dsn, timeout=5)
        try:
            return int(await connection.fetchval("select count(*) from metrics.batches"))
        finally:
            await connection.close()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return 0


async def until_stored(dsn: str, num_batches: int) -> None:
    while await num_stored(dsn) < num_batches:
        await asyncio.sleep(0.05)


async def stored_windows(dsn: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """By source and start, what the service has stored of each window."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            """select source_id, starts_at, series, first_at, first_step, last_at, last_step
            from metrics.windows"""
        )
    finally:
        await connection.close()
    return {(row[0], row[1]): (json.loads(row[2]), *row[3:]) for row in rows}


async def expected_windows(access: KafkaAccess) -> dict[tuple[str, int], tuple[Any, ...]]:
    """What the records that are in the topics give, folded without Faust and without any fault."""
    states: dict[bytes, SourceState] = {}
    for topic in ("faults.metrics", "faults.reports"):
        num_records = await num_written(access, topic)
        for record in await read_topic(access, topic, at_least=num_records):
            if observation := observe(RunTokens(None), record):
                states[observation.key] = observation.fold(states.get(observation.key))
    expected = {}
    for key, state in states.items():
        for window in state.source.windows:
            at = window.progress
            steps = (at.first_at, at.first_step, at.last_at, at.last_step) if at else (None,) * 4
            series = json.loads(msgspec.json.encode(window.series))
            expected[key.decode(), window.starts_at] = (series, *steps)
    return expected


async def num_written(access: KafkaAccess, topic: str) -> int:
    consumer = AIOKafkaConsumer(topic, **access.options())
    await consumer.start()
    try:
        return sum((await consumer.end_offsets(consumer.assignment())).values())
    finally:
        await consumer.stop()


async def until_stored_windows(dsn: str, expected: dict[tuple[str, int], tuple[Any, ...]]) -> None:
    """A source keeps its newest windows; earlier ones may be stored too."""
    while True:
        stored = await stored_windows(dsn)
        if {key: stored.get(key) for key in expected} == expected:
            return
        await asyncio.sleep(0.5)


async def test_kills_of_metrics_postgres_and_broker_under_load_change_no_sample_and_no_window(
    tmp_path: Path,
) -> None:
    made = batches()
    expected: dict[str, dict[int, Any]] = {name: {} for name in NAMES}
    for number, (_, values) in enumerate(made):
        expected[NAMES[number % 3]] |= values
    async with (
        asyncio.timeout(540),
        running_kafka(tmp_path / "kafka") as kafka,
        running_postgres(tmp_path / "postgres") as postgres,
    ):
        access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
        await create_topics(access, PREFIX)
        url = (tmp_path / "objects").as_uri()
        await initialise(url)
        port = free_port()
        settings = service_environment(access, postgres.dsn, PREFIX) | {
            "object_store_url": url,
            "http_port": port,
        }
        sent = asyncio.Event()
        async with (
            killable_service("services.metrics", settings, tmp_path / "metrics.log") as metrics,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(produce_all(access, [event for event, _ in made], sent))
            for share in (0.1, 0.3, 0.5):
                await until_stored(postgres.dsn, int(NUM_BATCHES * share))
                metrics.kill()
                await until_stored(postgres.dsn, int(NUM_BATCHES * (share + 0.1)))
                await postgres.child.kill_and_wait_ready()
                await until_stored(postgres.dsn, int(NUM_BATCHES * (share + 0.15)))
                await kafka.child.kill_and_wait_ready()
            await sent.wait()
            await until_stored(postgres.dsn, NUM_BATCHES)
            series = (await answer(port, "/series"))["series"]
            found = (await answer(port, "/samples", max_points=100_000))["series"]
            windows = await expected_windows(access)
            assert {key[0].partition("/")[2][:3] for key in windows} == {"0", "pod"}
            await until_stored_windows(postgres.dsn, windows)
    assert {one["name"]: one["num_samples"] for one in series} == dict.fromkeys(
        NAMES, NUM_BATCHES // 3 * SAMPLES_PER_BATCH
    ), "each batch counted once"
    for name in NAMES:
        one = found[name]
        assert dict(zip(one["steps"], one["values"], strict=True)) == expected[name]
