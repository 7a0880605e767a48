"""kill -9 of the metrics service and of Postgres under load: the same samples after the restart."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from drivetrain_schemas.envelope import Event
from services.runtime.kafka_access import KafkaAccess
from services.runtime.stores import initialise
from services.runtime.topics import create_topics
from services.standalone.embedded import running_kafka, running_postgres
from services.standalone.ports import free_port
from tests.events import make_event
from tests.handlers.metrics.builders import JOB, make_samples
from tests.platform_service import READ_TOKEN, produce, service_environment

pytestmark = pytest.mark.timeout(600)

NUM_BATCHES = 600
SAMPLES_PER_BATCH = 200
NAMES = ("loss", "rate", "norm")


class MetricsProcess:
    """The service as a process that can be killed, and is started again whenever it ends."""

    def __init__(self, environment: dict[str, str], port: int, log: Path) -> None:
        self._environment = environment
        self._port = port
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        while True:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "services.metrics", env=self._environment, stdout=log
                )
            await self._process.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def get(self, path: str, **query: Any) -> Any:
        """The answer, however long the service needs to come back."""
        headers = {"Authorization": f"Bearer {READ_TOKEN}"}
        address = f"http://127.0.0.1:{self._port}"
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
        await produce(access, "faults.", *events[start : start + 10])
        if start % 50 == 0:
            await produce(access, "faults.", *events[start : start + 5])  # once more
    sent.set()


@asynccontextmanager
async def metrics_process(
    access: KafkaAccess, dsn: str, home: Path
) -> AsyncIterator[MetricsProcess]:
    url = (home / "objects").as_uri()
    await initialise(url)
    port = free_port()
    settings = service_environment(access, dsn, "faults.") | {
        "object_store_url": url,
        "http_port": port,
    }
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN_")}
    given = {f"DRIVETRAIN_{name.upper()}": str(value) for name, value in settings.items()}
    process = MetricsProcess(kept | given, port, home / "metrics.log")
    running = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        running.cancel()
        process.kill()


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


async def test_kills_of_metrics_and_of_postgres_under_load_change_no_sample(tmp_path: Path) -> None:
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
        await create_topics(access, "faults.")
        sent = asyncio.Event()
        async with (
            metrics_process(access, postgres.dsn, tmp_path) as metrics,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(produce_all(access, [event for event, _ in made], sent))
            for share in (0.1, 0.3, 0.5):
                await until_stored(postgres.dsn, int(NUM_BATCHES * share))
                metrics.kill()
                await until_stored(postgres.dsn, int(NUM_BATCHES * (share + 0.1)))
                await postgres.child.kill_and_wait_ready()
            await sent.wait()
            await until_stored(postgres.dsn, NUM_BATCHES)
            series = (await metrics.get("/series"))["series"]
            found = (await metrics.get("/samples", max_points=100_000))["series"]
    assert {one["name"]: one["num_samples"] for one in series} == dict.fromkeys(
        NAMES, NUM_BATCHES // 3 * SAMPLES_PER_BATCH
    ), "each batch counted once"
    for name in NAMES:
        one = found[name]
        assert dict(zip(one["steps"], one["values"], strict=True)) == expected[name]
