"""How fast charts are read out of a store of a billion points, and what a point takes.

The store is built here in the service's own tables and files (`synthetic_store`): every sample is
in a Parquet file of the object store (a directory), the levels of charts are in Postgres. Ours is
the read API of the metrics service, in this process. The peer is MLflow's REST API over the same
Postgres server: the whole history of one metric, which it has no way to sum up, times the number of
series; and its table. It is installed by `make exchange-tools`; without it its rows are left out.

`--points` builds a smaller store; a billion needs 12 GB of disk and some ten minutes.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx

from benchmarks.mlflow_peer import backend_store, remark
from benchmarks.report import Row, arguments, options_of, publish
from benchmarks.synthetic_store import (
    NAMES,
    NUM_SERIES,
    Size,
    build,
    job,
    size_of,
    values_of,
)
from services.metrics.api import read_api
from services.metrics.settings import MetricsSettings
from services.runtime.database import Database
from services.runtime.object_store import ObjectStore
from services.runtime.stores import initialise, open_object_store
from services.runtime.transaction import Origin
from services.standalone.embedded import running_postgres
from tests.exchange.mlflow_server import running_mlflow
from tests.exchange.tools import MISSING, find_tools

TITLE = "Queries of a billion points"
MEASURES = (
    "services/metrics/api.py",
    "services/metrics/cold",
    "services/metrics/core",
    "services/metrics/series",
)
NOTES = """
The read API in the benchmark's process, without network, over a store built in the service's own
tables and files: 1,000 series of 1,000,000 points in 50 jobs, all samples in Parquet files of a
directory. 20 series a query, at most 500 points of each as pages ask for them, 100 queries of each
kind of random jobs, so that p99 is the second slowest. The peer sends all samples, for it has no
points of charts; its time is that of one series, times 20.
"""

BILLION = 1_000_000_000
ROUNDS = 100
POINTS = 500  # of each series at most, as pages ask
MIN_POINTS = 100  # an answer has at most 300 KB
MAX_SECONDS = 0.1
MIN_RATIO = 50.0
MAX_STORAGE_RATIO = 1 / 20
SETTINGS = MetricsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")
TABLES = ("levels", "series", "cold_chunks", "cold_files")
Queries = dict[str, dict[str, Any]]


def queries(size: Size, rng: random.Random) -> Queries:
    """One of each kind, of random jobs."""
    one = {"job_id": job(rng.randrange(size.num_jobs)), "name": NAMES, "max_points": POINTS}
    tenth = rng.randrange(size.num_steps * 9 // 10)
    exact = rng.randrange(size.num_steps - POINTS)
    return {
        "all steps": one,
        "a tenth of the steps": {
            **one,
            "from_step": tenth,
            "to_step": tenth + size.num_steps // 10,
        },
        "single samples": {**one, "from_step": exact, "to_step": exact + POINTS - 1},
    }


async def measure_ours(
    database: Database, store: ObjectStore, size: Size, rounds: int
) -> dict[str, list[float]]:
    rng = random.Random(0)
    found: dict[str, list[float]] = {}
    transport = httpx.ASGITransport(app=read_api(database, store, SETTINGS))
    async with httpx.AsyncClient(transport=transport, base_url="http://metrics") as client:
        await client.get("/chart", params=queries(size, rng)["all steps"])  # connections, caches
        for _ in range(rounds):
            for kind, query in queries(size, rng).items():
                started = time.perf_counter()
                answer = await client.get("/chart", params=query)
                found.setdefault(kind, []).append(time.perf_counter() - started)
                assert answer.status_code == 200, answer.text
                series = answer.json()["series"].values()
                assert len(series) == NUM_SERIES
                assert min(len(one["values"]) for one in series) >= MIN_POINTS, "too few points"
    return found


async def bytes_per_point(connection: asyncpg.Connection, size: Size) -> float:
    in_postgres = 0
    for table in TABLES:
        in_postgres += await connection.fetchval(f"select pg_total_relation_size('{table}')")
    in_files = await connection.fetchval("select sum(size_bytes) from cold_files")
    print(f"Postgres {in_postgres / size.num_points:.2f}, files {in_files / size.num_points:.2f}")
    return float((in_postgres + in_files) / size.num_points)


async def measure_mlflow(dsn: str, folder: Path, num_steps: int) -> tuple[float, float]:
    """Seconds for the history of one metric, and bytes per point of its table."""
    tools = find_tools()
    assert tools is not None
    with running_mlflow(tools, folder, await backend_store(dsn)) as server:
        async with httpx.AsyncClient(
            base_url=f"{server.url}/api/2.0/mlflow", trust_env=False, timeout=600
        ) as client:
            body = {"experiment_id": "0", "start_time": 0}
            created = (await client.post("/runs/create", json=body)).json()
            run_id = created["run"]["info"]["run_id"]
            size = await _fill(urlsplit(dsn)._replace(path="/mlflow").geturl(), run_id, num_steps)
            query = {"run_id": run_id, "metric_key": NAMES[0]}
            started = time.perf_counter()
            answer = (await client.get("/metrics/get-history", params=query)).json()
            seconds = time.perf_counter() - started
            assert len(answer["metrics"]) == num_steps, len(answer["metrics"])
    return seconds, size


async def _fill(dsn: str, run_id: str, num_steps: int) -> float:
    """The same samples as ours, as MLflow itself stores them. Bytes per point."""
    connection = await asyncpg.connect(dsn, command_timeout=600)
    try:
        values = values_of(0, num_steps).tolist()
        await connection.copy_records_to_table(
            "metrics",
            columns=("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
            records=(
                (NAMES[0], value, 1_700_000_000_000 + step * 250, run_id, step, False)
                for step, value in enumerate(values)
            ),
        )
        await connection.execute("vacuum analyze metrics")
        return (
            float(await connection.fetchval("select pg_total_relation_size('metrics')")) / num_steps
        )
    finally:
        await connection.close()


async def measure(num_points: int, rounds: int) -> list[Row]:
    size = size_of(num_points)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = (folder / "objects").as_uri()
        await initialise(url)
        store = open_object_store(url)
        async with running_postgres(folder / "postgres") as postgres:
            database = Database(postgres.dsn, "metrics", Origin("benchmark", ""))
            await database.open(["services.metrics"])
            started = time.perf_counter()
            await build(database, store, size)
            print(f"{size.num_points:,} points built in {time.perf_counter() - started:.0f} s")
            try:
                found = await measure_ours(database, store, size, rounds)
                for kind, seconds in found.items():
                    print(f"{kind}: {_figures(seconds)}", flush=True)
                async with database.connection() as connection:
                    stored = await bytes_per_point(connection, size)
            finally:
                await database.close()
            peer = None
            if find_tools() is not None:
                peer = await measure_mlflow(postgres.dsn, folder / "mlflow", size.num_steps)
            else:
                print(MISSING)
    return rows(size, found, stored, peer)


def rows(
    size: Size,
    found: dict[str, list[float]],
    stored: float,
    peer: tuple[float, float] | None,
) -> list[Row]:
    of = f"{NUM_SERIES} series x {POINTS:,} points of {size.num_points:,} points"
    made = [_row(f"{of}, {kind}", kind, seconds) for kind, seconds in found.items()]
    if peer is None:
        return made
    theirs = peer[0] * NUM_SERIES
    ours = statistics.median(found["all steps"])
    return [
        *made,
        Row(
            id="metrics_query.history",
            what=f"{NUM_SERIES} series of {size.num_steps:,} steps",
            ours=f"{ours * 1000:,.0f} ms (points of a chart)",
            peer=f"{theirs:,.1f} s (MLflow get-history, {NUM_SERIES} x one)",
            ratio=theirs / ours,
            target=f"at least {MIN_RATIO:g} x",
            met=theirs / ours >= MIN_RATIO,
        ),
        Row(
            id="metrics_query.storage",
            what="storage per point, levels of charts included",
            ours=f"{stored:.1f} bytes",
            peer=f"{peer[1]:.0f} bytes (MLflow's table)",
            ratio=stored / peer[1],
            target=f"at most {MAX_STORAGE_RATIO:g} x",
            met=stored / peer[1] <= MAX_STORAGE_RATIO,
        ),
    ]


def _row(what: str, kind: str, seconds: Sequence[float]) -> Row:
    p99 = _p99(seconds)
    return Row(
        id=f"metrics_query.{kind.replace(' ', '_').replace(',', '')}",
        what=what,
        ours=_figures(seconds),
        peer="",
        ratio=p99 / MAX_SECONDS,
        target=f"p99 at most {MAX_SECONDS * 1000:g} ms",
        met=p99 <= MAX_SECONDS,
    )


def _figures(seconds: Sequence[float]) -> str:
    median = statistics.median(seconds)
    return f"p99 {_p99(seconds) * 1000:,.0f} ms, median {median * 1000:,.0f} ms of {len(seconds)}"


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int((len(seconds) - 1) * 0.99)]


def main() -> None:
    parser = arguments("Reading charts out of a large store")
    parser.add_argument("--points", type=int, default=BILLION, help="how large the store is")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind of query")
    wanted = parser.parse_args()
    is_whole = wanted.points >= BILLION and wanted.rounds >= ROUNDS
    given = options_of("metrics_query", wanted, is_whole=is_whole)
    num_points, rounds = (1_000_000, 5) if given.quick else (wanted.points, wanted.rounds)
    made = asyncio.run(measure(num_points, rounds))
    publish(made, given, ["asyncpg", "pyarrow", "numpy"], remark())


if __name__ == "__main__":
    main()
