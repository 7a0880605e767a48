"""How fast a chart of 50 series of 100,000 steps is read, against reading all their samples.

Ours is the answer of the metrics service's read API, from the levels that it keeps as samples
arrive. The peer reads the same chunks as the service of commit 3455aa9 did: two statements per
series, all samples, merged and downsampled. Both in this process, in turn, over a real Postgres;
the samples are taken in as they arrive from pods. Rows that have no peer state their own target.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx

from benchmarks.report import Row, options, publish
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, run_id_for
from drivetrain_schemas.metrics import Column, SamplesRecorded
from services.metrics import streams
from services.metrics.api import read_api
from services.metrics.core.downsampling import downsample
from services.metrics.core.series import Chunk, merge
from services.metrics.series.rolling import Roller
from services.metrics.settings import MetricsSettings
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Origin
from services.standalone.embedded import running_postgres
from tests.events import handle_batch, make_event
from tests.fakes import InMemoryObjectStore

TITLE = "Charts of long series"
MEASURES = (
    "services/metrics/api.py",
    "services/metrics/core",
    "services/metrics/series",
)
NOTES = """
Median and range. The read API of the metrics service in the benchmark's process, without network,
gateway and browser, from levels that it keeps as samples arrive. The peer reads the same chunks
as the service of commit 3455aa9 did: two statements per series, all samples, merged and
downsampled.
"""

NUM_SERIES = 50
STEPS_PER_BATCH = 80  # as the SDK sends: about 4,000 samples
POINTS = 500
JOB = job_id_for("default", "chart")
NAMES = [f"layer_{number}/gradient_norm" for number in range(NUM_SERIES)]
MAX_SECONDS = 0.2
MAX_BYTES = 300_000
SETTINGS = MetricsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")

TAKE = partial(streams.take_samples, RunTokens(None))


def batch(number: int, first_step: int, num_steps: int) -> Event[SamplesRecorded]:
    steps = tuple(range(first_step, first_step + num_steps))
    return make_event(
        SamplesRecorded(
            tenant_id="default",
            job_id=JOB,
            run_id=run_id_for(JOB, 1),
            attempt=1,
            fence=1,
            rank=0,
            session="s",
            batch=number,
            sent_at=datetime.now(UTC),
            columns={
                name: Column(
                    steps=steps, values=tuple(1 / (step + 1 + len(name)) for step in steps)
                )
                for name in NAMES
            },
        )
    )


async def take_in(database: Database, num_steps: int) -> None:
    roller = Roller(database, SystemClock(), max_age=timedelta(0))
    for number, first_step in enumerate(range(0, num_steps, STEPS_PER_BATCH)):
        await handle_batch(database, TAKE, batch(number, first_step, STEPS_PER_BATCH))
        if number % 50 == 0:
            await roller.roll_all()
    await roller.roll_all()
    async with database.connection() as connection:
        await connection.execute("vacuum analyze chunks")
        await connection.execute("vacuum analyze levels")


async def plain_scan(database: Database) -> int:
    """The chart as the first version read it. Returns the number of points."""
    num_points = 0
    for name in NAMES:
        async with database.connection() as connection:
            await connection.fetchval(FIRST_READABLE_STEP, JOB, name)
            rows = await connection.fetch(CHUNKS, JOB, name)
        series = merge(Chunk(*row) for row in rows)
        num_points += len(downsample(series, POINTS).steps)
    return num_points


FIRST_READABLE_STEP = """
select coalesce(max(max_step) + 1, 0) from (
    select max_step, sum(num_samples) over (order by max_step desc, id desc) as num_read
    from chunks where job_id = $1 and rank = 0 and series = $2
) as chunk
where num_read > 1000000
"""
CHUNKS = """
select attempt, steps, values from chunks where job_id = $1 and rank = 0 and series = $2 order by id
"""


async def seconds_of(act: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await act()
    return time.perf_counter() - started


async def measure(quick: bool) -> list[Row]:
    num_steps, rounds = (4_000, 2) if quick else (100_000, 20)
    with tempfile.TemporaryDirectory() as folder:
        async with running_postgres(Path(folder) / "postgres") as postgres:
            database = Database(postgres.dsn, "metrics", Origin("benchmark", ""))
            await database.open(["services.metrics"])
            await take_in(database, num_steps)
            try:
                return await _rows(database, num_steps, rounds)
            finally:
                await database.close()


async def _rows(database: Database, num_steps: int, rounds: int) -> list[Row]:
    transport = httpx.ASGITransport(app=read_api(database, InMemoryObjectStore(), SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:

        async def chart(**query: str | int) -> httpx.Response:
            given = {"job_id": JOB, "name": NAMES, "max_points": POINTS, **query}
            response = await client.get("/chart", params=given)
            assert response.status_code == 200, response.text
            return response

        whole = await chart()
        after = whole.json()["next"]
        await handle_batch(database, TAKE, batch(10**6, num_steps, 20))
        middle = num_steps // 2
        ours, polls, zooms, peers = [], [], [], []
        for number in range(rounds):
            ours.append(await seconds_of(chart))
            polls.append(await seconds_of(lambda: chart(after=after)))
            zooms.append(
                await seconds_of(lambda: chart(from_step=middle, to_step=middle + num_steps // 50))
            )
            if number < rounds // 4 + 1:
                peers.append(await seconds_of(lambda: plain_scan(database)))
        size = len((await chart()).content)
    of = f"{NUM_SERIES} series of {num_steps:,} steps"
    peer = statistics.median(peers)
    return [
        _row("whole", f"{of}, one answer", ours, peer),
        _row("poll", f"{of}, what changed since the last answer", polls, peer),
        _row("zoom", f"{of}, a fiftieth of the steps", zooms, peer),
        Row(
            id="chart_read.bytes",
            what=f"{of}, size of the answer",
            ours=f"{size / 1000:,.0f} KB",
            peer=f"{MAX_BYTES / 1000:,.0f} KB",
            ratio=size / MAX_BYTES,
            target="at most 1 x",
            met=size <= MAX_BYTES,
        ),
    ]


def _row(row_id: str, what: str, ours: list[float], peer: float) -> Row:
    median = statistics.median(ours)
    return Row(
        id=f"chart_read.{row_id}",
        what=what,
        ours=f"{median * 1000:,.0f} ms ({min(ours) * 1000:,.0f}-{max(ours) * 1000:,.0f})",
        peer=f"{peer * 1000:,.0f} ms (all samples, series by series)",
        ratio=median / peer,
        target=f"at most {MAX_SECONDS * 1000:g} ms",
        met=median <= MAX_SECONDS,
    )


def main() -> None:
    given = options("chart_read", "Reading a chart of many long series")
    publish(asyncio.run(measure(given.quick)), given, ["asyncpg", "msgspec"])


if __name__ == "__main__":
    main()
