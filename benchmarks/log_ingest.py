"""Lines of output per second from the pod's pipe to readable, and what printing costs a program.

Ours is the whole way: the shim's reading of lines (without its limit of 200 KiB/s, which would be
what is measured), its telemetry, real Kafka, the metrics service as a process of its own with
levels and search, real Postgres, until its read API answers with every line. Peer: an `INSERT` for
each line into an indexed table of the same Postgres, nothing between, pipelined by asyncpg in
transactions of 1,000. A search of all these lines is compared with `ILIKE` over the peer's table.

What printing costs: a program writes lines as fast as it can into the shim, with its limit, and
into `tee FILE`. In turn, medians of all rounds.
"""

import asyncio
import itertools
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from pydantic import SecretStr

from benchmarks.metrics_ingest import PREFIX, READ_TOKEN, RUN_TOKEN_KEY, metrics_service
from benchmarks.report import Row, options, publish
from drivetrain.pod.events import Events
from drivetrain.pod.logs import BURST_BYTES, RankLog, RateLimit
from drivetrain.pod.telemetry import Telemetry
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import KafkaAccess as PodKafkaAccess
from drivetrain_schemas.pods import PodSpec
from services.runtime.kafka_access import KafkaAccess
from services.runtime.run_tokens import RunTokens
from services.runtime.topics import create_topics
from services.standalone.embedded import RunningKafka, running_kafka, running_postgres

TITLE = "Lines of output"
MEASURES = (
    "services/metrics/core/log_levels.py",
    "services/metrics/core/log_search.py",
    "services/metrics/logs",
    "services/metrics/streams.py",
    "trainer/drivetrain/pod/events.py",
    "trainer/drivetrain/pod/logs.py",
    "trainer/drivetrain/pod/telemetry.py",
)
NOTES = """
Medians. Ours includes the shim, Kafka, levels of lines and the metrics service, without the
shim's limit: a pod may send 200 KiB/s, about 2,500 such lines. The inserts use Postgres only.
What printing costs is the program's time to write into the shim, which keeps a file and takes the
lines with its limit.
"""

MAX_SECONDS = 300.0
READ_BYTES = 65_536
NEEDLE = "out of memory"
TABLE = """
create table if not exists lines (
    job_id text not null, attempt integer not null, rank integer not null, number bigint not null,
    line text not null
);
create index if not exists lines_of_job on lines (job_id, number)
"""
WRITER = """
import os, sys, time
line = b"2026-11-22 10:00:00,123 INFO trainer step 100 loss 0.3141 lr 0.0003 tokens 4096\\n"
piece, left = line * 800, int(sys.argv[1])
began = time.perf_counter()
while left > 0:
    left -= os.write(1, piece)
print(time.perf_counter() - began, file=sys.stderr)
"""


def lines_of(count: int) -> list[str]:
    """Of a training; one in 20,000 is the one that is searched for."""
    return [
        f"2026-11-22 10:00:{n % 60:02d},123 ERROR trainer step {n} CUDA {NEEDLE}"
        if n % 20_000 == 7
        else f"2026-11-22 10:00:{n % 60:02d},123 INFO trainer step {n} loss {1 / (n + 1):.6f}"
        for n in range(count)
    ]


class OurWay:
    def __init__(self, kafka: RunningKafka, url: str) -> None:
        self._kafka = kafka
        self._client = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {READ_TOKEN}"}, trust_env=False
        )

    async def ingest(self, job_id: str, lines: list[str]) -> float:
        """Seconds until all lines can be read."""
        spec = _pod(self._kafka, job_id)
        events, telemetry = Events(spec), Telemetry(spec.kafka)
        telemetry.start()
        content = memoryview("".join(f"{line}\n" for line in lines).encode())
        log = RankLog(0, RateLimit(math.inf, math.inf, time.monotonic()))
        started = time.perf_counter()
        for first in range(0, len(content), READ_BYTES):
            log.feed(bytes(content[first : first + READ_BYTES]), time.monotonic())
            for chunk in log.take(time.monotonic()):
                while not telemetry.put(events.logs(chunk)):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0)
        async with asyncio.timeout(MAX_SECONDS):
            while (await self._read(job_id, tail=1))["num_lines"] < len(lines):
                await asyncio.sleep(0.02)
        seconds = time.perf_counter() - started
        await telemetry.close()
        return seconds

    async def search(self, job_id: str) -> tuple[float, int, float]:
        """Seconds for all matches, how many there are, and seconds of the longest request."""
        longest, num_found, after, started = 0.0, 0, 0, time.perf_counter()
        while True:
            begin = time.perf_counter()
            page = await self._read(job_id, search=NEEDLE, after=after)
            longest = max(longest, time.perf_counter() - begin)
            num_found, after = num_found + len(page["lines"]), page["next"]
            if page["is_complete"]:
                return time.perf_counter() - started, num_found, longest

    async def _read(self, job_id: str, **query: str | int) -> Any:
        answer = await self._client.get("/logs", params={"job_id": job_id, **query})
        answer.raise_for_status()
        return answer.json()


class Inserts:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def ingest(self, job_id: str, lines: list[str]) -> float:
        rows = [(job_id, 1, 0, number, line) for number, line in enumerate(lines)]
        started = time.perf_counter()
        for first in range(0, len(rows), 1000):
            async with self._connection.transaction():
                await self._connection.executemany(
                    "insert into lines values ($1, $2, $3, $4, $5)", rows[first : first + 1000]
                )
        return time.perf_counter() - started

    async def search(self, job_id: str) -> tuple[float, int]:
        started = time.perf_counter()
        rows = await self._connection.fetch(
            "select * from lines where job_id = $1 and line ilike $2 order by number",
            job_id,
            f"%{NEEDLE}%",
        )
        return time.perf_counter() - started, len(rows)


def printing(num_bytes: int, take: Callable[[bytes], None]) -> float:
    """Seconds that a program needs to print so much, while `take` gets each piece."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(num_bytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        while data := program.stdout.read(READ_BYTES):
            take(data)
        return float(program.stderr.read())


def printing_to_tee(num_bytes: int, path: Path) -> float:
    with (
        subprocess.Popen(
            ["tee", str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as tee,
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(num_bytes)], stdout=tee.stdin, stderr=subprocess.PIPE
        ) as program,
    ):
        assert tee.stdin is not None
        assert program.stderr is not None
        tee.stdin.close()
        return float(program.stderr.read())


def printing_to_shim(num_bytes: int, path: Path) -> float:
    """What a shim does with a piece: it keeps it in a file and takes the lines."""
    limit = RateLimit(200 * 1024, BURST_BYTES, time.monotonic())
    log, number = RankLog(0, limit), itertools.count()
    with path.open("wb") as kept:

        def take(data: bytes) -> None:
            kept.write(data)
            log.feed(data, time.monotonic())
            if next(number) % 100 == 0:
                log.take(time.monotonic())

        return printing(num_bytes, take)


async def measure(quick: bool) -> list[Row]:
    num_lines, rounds = (10_000, 1) if quick else (1_000_000, 3)
    num_bytes = 5_000_000 if quick else 500_000_000
    lines = lines_of(num_lines)
    rates: list[tuple[float, float]] = []
    searches: list[tuple[float, float, float]] = []
    printed: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for _ in range(rounds):
            ours = printing_to_shim(num_bytes, home / "shim")
            printed.append((ours, printing_to_tee(num_bytes, home / "tee")))
        async with (
            running_kafka(home / "kafka") as kafka,
            running_postgres(home / "postgres") as postgres,
        ):
            access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
            await create_topics(access, PREFIX)
            connection = await asyncpg.connect(postgres.dsn)
            await connection.execute(TABLE)
            async with metrics_service(kafka, postgres.dsn, home / "log") as url:
                our_way, inserts = OurWay(kafka, url), Inserts(connection)
                await our_way.ingest(job_id_for("default", "warm"), lines[:1000])
                for number in range(rounds):
                    job_id = job_id_for("default", f"benchmark-{number}")
                    seconds = await our_way.ingest(job_id, lines)
                    peer = await inserts.ingest(job_id, lines)
                    rates.append((num_lines / seconds, num_lines / peer))
                    took, num_found, longest = await our_way.search(job_id)
                    peer_took, num_peer = await inserts.search(job_id)
                    assert num_found == num_peer > 0, (num_found, num_peer)
                    searches.append((took, peer_took, longest))
                    print(f"{number + 1}/{rounds}: {rates[-1]}, {searches[-1]}, {printed[number]}")
            await connection.close()
    return _rows(num_lines, num_bytes, rates, searches, printed)


def _rows(
    num_lines: int,
    num_bytes: int,
    rates: list[tuple[float, float]],
    searches: list[tuple[float, float, float]],
    printed: list[tuple[float, float]],
) -> list[Row]:
    our_rate, peer_rate = map(statistics.median, zip(*rates, strict=True))
    took, peer_took, longest = map(statistics.median, zip(*searches, strict=True))
    our_print, tee_print = map(statistics.median, zip(*printed, strict=True))
    return [
        Row(
            id="log_ingest.lines",
            what=f"{num_lines:,} lines, from a rank's pipe to readable",
            ours=f"{our_rate:,.0f} lines/s",
            peer=f"{peer_rate:,.0f} lines/s (an insert each, in transactions of 1,000)",
            ratio=our_rate / peer_rate,
            target="at least 1 x",
            met=our_rate >= peer_rate,
        ),
        Row(
            id="log_ingest.search",
            what=f"all matches of a text in {num_lines:,} lines",
            ours=f"{took:.2f} s, of which the longest request {longest:.2f} s",
            peer=f"{peer_took:.2f} s (ilike, in one request)",
            ratio=took / peer_took,
            target="no request over 1 s",
            met=longest <= 1.0,
        ),
        Row(
            id="log_ingest.print",
            what=f"a program prints {num_bytes / 1e6:,.0f} MB as fast as it can",
            ours=f"{num_bytes / 1e6 / our_print:,.0f} MB/s",
            peer=f"{num_bytes / 1e6 / tee_print:,.0f} MB/s (tee)",
            ratio=our_print / tee_print,
            target="at least 100 MB/s",
            met=num_bytes / 1e6 / our_print >= 100,
        ),
    ]


def _pod(kafka: RunningKafka, job_id: str) -> PodSpec:
    run_id = run_id_for(job_id, 1)
    access = PodKafkaAccess(
        bootstrap_servers=kafka.bootstrap_servers,
        username=kafka.username,
        password=kafka.password,
        topic_prefix=PREFIX,
    )
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
        kafka=access,
        object_store_url="file:///none",
        rendezvous_file="none",
        master_port=1,
        run_token=RunTokens(SecretStr(RUN_TOKEN_KEY)).of(run_id, 1),
    )


def main() -> None:
    given = options(
        "log_ingest", "Lines per second from a pod's pipe to readable, and what printing costs"
    )
    publish(asyncio.run(measure(given.quick)), given, ["aiokafka", "asyncpg", "msgspec"])


if __name__ == "__main__":
    main()
