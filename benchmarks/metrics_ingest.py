"""Points per second from `run.log` to queryable, against single-row inserts of the same points.

Ours is the whole way: the SDK's reporter, the shim's telemetry, real Kafka, the metrics service as
a process of its own, real Postgres, until its read API answers with every point. Peers: one
`INSERT` of one row each into an indexed table of the same Postgres, nothing between: each with its
own commit (the first points only, for it is slow), and at their very best, pipelined by asyncpg in
transactions of 1,000. In turn, medians of all rounds.

Then four runs log at once, as fast as their buffers are emptied, against four clients of an MLflow
server on the same Postgres that send batches of 1,000 (`make exchange-tools`; left out without).
"""

import asyncio
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
from pydantic import SecretStr

from benchmarks import mlflow_peer
from benchmarks.report import Row, options, publish
from drivetrain.environment import Environment
from drivetrain.messages import Samples, StepProgress, decoder
from drivetrain.pod.events import Events
from drivetrain.pod.telemetry import Telemetry
from drivetrain.reporting import Key, Reporter
from drivetrain.samples import LastAndBest
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import KafkaAccess as PodKafkaAccess
from drivetrain_schemas.pods import PodSpec
from services.runtime.kafka_access import KafkaAccess
from services.runtime.run_tokens import RunTokens
from services.runtime.topics import create_topics
from services.standalone.embedded import RunningKafka, running_kafka, running_postgres
from services.standalone.ports import free_port
from tests.exchange.tools import MISSING, find_tools

TITLE = "Metric points"
MEASURES = (
    "services/metrics/core",
    "services/metrics/series",
    "services/metrics/store.py",
    "services/metrics/streams.py",
    "services/runtime/flow.py",
    "trainer/drivetrain/pod/events.py",
    "trainer/drivetrain/pod/telemetry.py",
    "trainer/drivetrain/reporting.py",
    "trainer/drivetrain/samples.py",
)
NOTES = """
From `run.log` until the metrics service's read API answers with every point: reporter, shim,
Kafka, the service as its own process, Postgres. The single-row inserts use Postgres only. The
shape is four series logged as fast as the buffers are emptied, so that a batch holds tens of
thousands of samples of each series, and the time for a billion is this rate continued. A job that
logs a few values a second sends batches of a few samples, of which the service takes far fewer a
second: a billion of those takes many hours.
"""

SERIES = ("loss", "accuracy", "learning_rate", "gradient_norm")
PREFIX = "benchmark."
READ_TOKEN = secrets.token_hex(16)
RUN_TOKEN_KEY = "a-key-that-only-services-have"
NUM_COMMITTED = 2000
MAX_SECONDS = 120.0
TARGET = 5.0
TARGET_PIPELINED = 1.0
NUM_RUNS = 4
MAX_WAITING = 150_000  # of the 200,000 samples that a rank's buffer holds
TARGET_MLFLOW = 100.0
BILLION_IN_AN_HOUR = 1e9 / 3600
TABLE = """
create table if not exists points (
    job_id text not null, run_id text not null, attempt integer not null, rank integer not null,
    series text not null, step bigint not null, value double precision not null
);
create index if not exists points_of_series on points (job_id, rank, series, step)
"""
INSERT = "insert into points values ($1, $2, $3, $4, $5, $6, $7)"


class ShimInProcess:
    """What a rank's reporter sends to, and the way on to Kafka, as in a pod's shim."""

    def __init__(self, events: Events, telemetry: Telemetry) -> None:
        self._events = events
        self._telemetry = telemetry
        self._loop = asyncio.get_running_loop()
        self._acknowledged: list[Key] = []

    def send(self, line: bytes) -> bool:
        message = decoder.decode(line)
        if isinstance(message, Samples):
            self._loop.call_soon_threadsafe(self._put, message)
        return True

    def acknowledged(self) -> list[Key]:
        taken, self._acknowledged = self._acknowledged, []
        return taken

    def close(self) -> None:
        return None

    def _put(self, message: Samples) -> None:
        key = (message.run_id, message.session, message.batch)
        accepted = self._telemetry.put(
            self._events.samples(message), lambda: self._acknowledged.append(key)
        )
        assert accepted, "the benchmark sends more than a pod's buffer holds"


async def ours(
    kafka: RunningKafka, url: str, number: int, num_steps: int, ask_seconds: float = 0.01
) -> float:
    """Seconds from the first `log` until all points can be read, asked for so often."""
    job_id = job_id_for("default", f"benchmark-{number}")
    run_id = run_id_for(job_id, 1)
    telemetry = Telemetry(PodKafkaAccess(**_access(kafka), topic_prefix=PREFIX))
    sending = asyncio.create_task(telemetry.run())
    reporter = Reporter(
        Environment("default", job_id, run_id, attempt=1, fence=1),
        ShimInProcess(Events(_pod(kafka, job_id, run_id)), telemetry),
        LastAndBest(),
        lambda: StepProgress(step=0),
    )
    reporter.start()
    started = time.perf_counter()
    await asyncio.to_thread(_log, reporter, num_steps)
    async with (
        asyncio.timeout(MAX_SECONDS),
        httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {READ_TOKEN}"}, trust_env=False
        ) as client,
    ):
        while await _num_queryable(client, job_id) < num_steps * len(SERIES):
            assert reporter.num_dropped == 0, "the benchmark logs more than a rank's buffer holds"
            await asyncio.sleep(ask_seconds)
    seconds = time.perf_counter() - started
    await asyncio.to_thread(reporter.close, 5.0)
    sending.cancel()
    await telemetry.close()
    return seconds


async def sustained(kafka: RunningKafka, url: str, number: int, num_steps: int) -> float:
    """Seconds until all points of four runs can be read."""
    started = time.perf_counter()
    numbers = range(number * NUM_RUNS, (number + 1) * NUM_RUNS)
    # Four that ask a hundred times a second take a core of the two.
    await asyncio.gather(*(ours(kafka, url, 1000 + one, num_steps, 0.25) for one in numbers))
    return time.perf_counter() - started


async def pipelined(dsn: str, number: int, num_steps: int) -> float:
    """Seconds for all points, 1,000 inserts to a transaction."""
    rows = _rows(number, num_steps)
    connection = await _connection_with_table(dsn)
    try:
        started = time.perf_counter()
        for first in range(0, len(rows), 1000):
            async with connection.transaction():
                await connection.executemany(INSERT, rows[first : first + 1000])
        return time.perf_counter() - started
    finally:
        await connection.close()


async def committed(dsn: str, number: int) -> float:
    """Seconds for the first points, each insert with its own commit."""
    rows = _rows(number, NUM_COMMITTED // len(SERIES))
    connection = await _connection_with_table(dsn)
    try:
        insert = await connection.prepare(INSERT)
        started = time.perf_counter()
        for row in rows:
            await insert.fetch(*row)
        return time.perf_counter() - started
    finally:
        await connection.close()


def _rows(number: int, num_steps: int) -> list[tuple[object, ...]]:
    job_id = job_id_for("default", f"benchmark-{number}")
    run_id = run_id_for(job_id, 1)
    return [
        (job_id, run_id, 1, 0, name, step, 1.0 / (step + 1))
        for step in range(num_steps)
        for name in SERIES
    ]


async def _connection_with_table(dsn: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLE)
    return connection


def _log(reporter: Reporter, num_steps: int) -> None:
    """Waits where a rank's buffer would overflow."""
    last = time.monotonic() + MAX_SECONDS
    for step in range(num_steps):
        while _num_waiting(reporter) > MAX_WAITING and time.monotonic() < last:
            time.sleep(0.002)
        value = 1.0 / (step + 1)
        reporter.log(step, dict.fromkeys(SERIES, value))


def _num_waiting(reporter: Reporter) -> int:
    return len(reporter._logged) // 3 + reporter._num_sorted


async def _num_queryable(client: httpx.AsyncClient, job_id: str) -> int:
    response = await client.get("/series", params={"job_id": job_id})
    if response.status_code == 503:  # too many are read at a time
        return 0
    answer = response.json()
    return sum(series["num_samples"] for series in answer["series"])


def _access(kafka: RunningKafka) -> dict[str, str]:
    return {
        "bootstrap_servers": kafka.bootstrap_servers,
        "username": kafka.username,
        "password": kafka.password,
    }


def _pod(kafka: RunningKafka, job_id: str, run_id: str) -> PodSpec:
    return PodSpec(
        pod_id=pod_id_for(job_id, 1, 0),
        tenant_id="default",
        job_id=job_id,
        run_id=run_id,
        attempt=1,
        fence=1,
        node_id="benchmark",
        pod_index=0,
        num_pods=1,
        first_rank=0,
        num_ranks=1,
        world_size=1,
        device_type="cpu",
        job=JobSpec(name="benchmark", command=("benchmark",)),
        kafka=PodKafkaAccess(**_access(kafka), topic_prefix=PREFIX),
        object_store_url="file:///none",
        rendezvous_file="none",
        master_port=1,
        run_token=RunTokens(SecretStr(RUN_TOKEN_KEY)).of(run_id, 1),
    )


@asynccontextmanager
async def metrics_service(kafka: RunningKafka, dsn: str, log: Path) -> AsyncIterator[str]:
    """The service as its own process; the address of its read API."""
    http_port, ops_port = free_port(), free_port()
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "KAFKA_SASL_USERNAME": kafka.username,
        "KAFKA_SASL_PASSWORD": kafka.password,
        "TOPIC_PREFIX": PREFIX,
        "POSTGRES_DSN": dsn,
        "HTTP_PORT": str(http_port),
        "READ_TOKEN": READ_TOKEN,
        # One run logs all there is; a platform bounds what it may.
        "MAX_SAMPLES_PER_SECOND_OF_RUN": "100000000",
        "MAX_LOG_BYTES_PER_SECOND_OF_RUN": "1000000000",
        "RUN_TOKEN_KEY": RUN_TOKEN_KEY,
        "OBJECT_STORE_URL": (log.parent / "objects").as_uri(),
        "OPS_PORT": str(ops_port),
    }
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.metrics",
            env=kept | {f"DRIVETRAIN_{name}": text for name, text in settings.items()},
            stdout=output,
            stderr=output,
        )
    try:
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
            while not await _is_ready(client, ops_port):
                assert process.returncode is None, await asyncio.to_thread(log.read_text)
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{http_port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_ready(client: httpx.AsyncClient, port: int) -> bool:
    try:
        return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def measure(quick: bool) -> list[Row]:
    num_steps, rounds = (2_000, 1) if quick else (40_000, 5)
    num_points = num_steps * len(SERIES)
    our_rates: list[float] = []
    committed_rates: list[float] = []
    pipelined_rates: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with (
            running_kafka(home / "kafka") as kafka,
            running_postgres(home / "postgres") as postgres,
        ):
            access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
            await create_topics(access, PREFIX)
            async with metrics_service(kafka, postgres.dsn, home / "log") as url:
                await ours(kafka, url, -1, 1000)  # connections, statements, first chunks
                for number in range(rounds):
                    our_rates.append(num_points / await ours(kafka, url, number, num_steps))
                    pipelined_rates.append(
                        num_points / await pipelined(postgres.dsn, number, num_steps)
                    )
                    committed_rates.append(NUM_COMMITTED / await committed(postgres.dsn, number))
                    print(
                        f"{number + 1}/{rounds}: {our_rates[-1]:,.0f} points/s, "
                        f"{committed_rates[-1]:,.0f}, {pipelined_rates[-1]:,.0f}"
                    )
                sustained_rates = [
                    num_points * NUM_RUNS * 5 / await sustained(kafka, url, number, 5 * num_steps)
                    for number in range(1 if quick else 3)
                ]
            theirs = None
            if find_tools() is None:
                print(MISSING)
            else:
                num_batches = 5 if quick else 25
                theirs = await mlflow_peer.points_per_second(
                    postgres.dsn, home / "mlflow", num_batches
                )
    what = f"{num_points:,} points of {len(SERIES)} series, run.log to queryable"
    return [
        _row("committed", what, our_rates, committed_rates, TARGET),
        _row("pipelined", what, our_rates, pipelined_rates, TARGET_PIPELINED),
        *_sustained_rows(statistics.median(sustained_rates), theirs),
    ]


def _sustained_rows(our_rate: float, theirs: float | None) -> list[Row]:
    what = f"{NUM_RUNS} runs at once, run.log to queryable"
    ours = f"{our_rate:,.0f} points/s"
    hour = Row(
        id="metrics_ingest.billion",
        what=what,
        ours=f"{ours}: a billion in {1e9 / our_rate / 60:,.0f} min",
        peer="",
        ratio=our_rate / BILLION_IN_AN_HOUR,
        target="a billion in an hour",
        met=our_rate >= BILLION_IN_AN_HOUR,
    )
    if theirs is None:
        return [hour]
    return [
        hour,
        Row(
            id="metrics_ingest.mlflow",
            what=what,
            ours=ours,
            peer=f"{theirs:,.0f} points/s (MLflow, log_batch(1000) x {NUM_RUNS} clients)",
            ratio=our_rate / theirs,
            target=f"at least {TARGET_MLFLOW:g} x",
            met=our_rate / theirs >= TARGET_MLFLOW,
        ),
    ]


def _row(
    peer: str, what: str, our_rates: list[float], peer_rates: list[float], target: float
) -> Row:
    our_rate, peer_rate = statistics.median(our_rates), statistics.median(peer_rates)
    return Row(
        id=f"metrics_ingest.{peer}",
        what=what,
        ours=f"{our_rate:,.0f} points/s",
        peer=f"{peer_rate:,.0f} points/s (single-row inserts, {peer})",
        ratio=our_rate / peer_rate,
        target=f"at least {target:g} x",
        met=our_rate / peer_rate >= target,
    )


def main() -> None:
    given = options("metrics_ingest", "Points per second from run.log to queryable")
    rows = asyncio.run(measure(given.quick))
    publish(rows, given, ["aiokafka", "asyncpg", "msgspec"], mlflow_peer.remark())


if __name__ == "__main__":
    main()
