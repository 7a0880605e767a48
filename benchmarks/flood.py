"""What one job that sends junk costs the others: the delay of their telemetry, and disk.

A pod sends a batch of samples and a heartbeat ten times a second. Its delay is the time until the
metrics service's read API answers with the samples, and until a reader of `reports` has the
heartbeat. Then a second program, with the same login, as all pods have, sends junk to `metrics` as
fast as the broker takes it, and heartbeats of no run to `reports`, and the delays are taken again
while it does. Disk is what the brokers' logs and the database have grown by when all junk is read.
Peer: the same pod without the flood, in the same run; on disk, the bytes of the junk itself.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import httpx
import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.log_ingest import _pod
from benchmarks.metrics_ingest import PREFIX, READ_TOKEN, metrics_service
from benchmarks.report import Row, options, publish
from drivetrain.messages import Samples
from drivetrain.pod.events import Events
from drivetrain.pod.telemetry import Telemetry
from drivetrain_schemas.access import POD, pod_client
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.topics import METRICS, REPORTS
from services.runtime.access.acls import wanted_acls
from services.runtime.access.kafka import apply_acls
from services.runtime.access.quotas import apply_quotas, wanted_quotas
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics
from services.standalone.embedded import RunningKafka, running_kafka, running_postgres

TITLE = "A flood of one job"
MEASURES = (
    "schemas/drivetrain_schemas/access.py",
    "schemas/drivetrain_schemas/topics.py",
    "services/metrics/streams.py",
    "services/runtime/access/quotas.py",
    "services/runtime/flow.py",
    "services/runtime/parking.py",
    "trainer/drivetrain/pod/telemetry.py",
)
NOTES = """
Medians of the delays of one pod's samples and heartbeats, with and without a second program that
sends junk as fast as it may. Both have the login of all pods; the pod sends with its job's client
id, which has a quota of its own, the other with one that has none. With the pod's own client id it
would delay it. Single samples wait for seconds at first: a quota is a mean of eleven seconds, so
the broker takes that much junk at once, and the metrics service reads it before what follows. The
heartbeats are read by a plain reader, not by the scheduler. On disk, junk is kept once as it was
sent and, as far as its bound, once as parked records.
"""

MIB = 1024**2
PASSWORD = "of-all-pods"
RECORD_BYTES = 100_000
HEARTBEAT_BYTES = 300
PERIOD_SECONDS = 0.1
TARGET_DELAY = 1.5
# The parked records of a service, and what Postgres keeps of them and of its own log.
PARKED_BYTES = 128 * MIB
DATABASE_BYTES = 128 * MIB
MAX_SECONDS = 500.0


class Pod:
    """Sends as a pod does, and measures until what it sent can be read."""

    def __init__(self, kafka: RunningKafka, url: str, name: str) -> None:
        self._job_id = job_id_for("default", name)
        spec = _pod(kafka, self._job_id)
        as_pod = {"username": POD, "password": PASSWORD, "client_id": pod_client(self._job_id)}
        login = spec.kafka.model_copy(update=as_pod)
        self._run_id, self._number = spec.run_id, 0
        self._events, self._telemetry = Events(spec), Telemetry(login)
        self._client = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {READ_TOKEN}"}, trust_env=False
        )

    async def __aenter__(self) -> "Pod":
        self._telemetry.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._telemetry.close()
        await self._client.aclose()

    async def samples(self) -> float:
        """Seconds until one more batch can be read."""
        self._number += 1
        columns = b'{"loss": {"steps": [%d], "values": [0.5]}}' % self._number
        message = Samples(self._run_id, 1, 1, 0, "flood", self._number, msgspec.Raw(columns))
        started = time.perf_counter()
        assert self._telemetry.put(self._events.samples(message))
        while await self._num_read() < self._number:
            await asyncio.sleep(0.01)
        return time.perf_counter() - started

    async def heartbeat(self, reader: AIOKafkaConsumer, number: int) -> float:
        """Seconds until a reader has it."""
        started = time.perf_counter()
        record = self._events.heartbeat(number, phase="training", step=number)
        self._telemetry.put_heartbeat(record)
        async for found in reader:
            if found.value == record.value:
                return time.perf_counter() - started
        raise AssertionError("the reader has ended")

    async def _num_read(self) -> int:
        answer = await self._client.get("/series", params={"job_id": self._job_id})
        if answer.status_code != 200:
            return 0
        return sum(series["num_samples"] for series in answer.json()["series"])


async def flood(access: KafkaAccess, num_bytes: int, num_heartbeats: int) -> None:
    pod = replace(access, username=POD, password=PASSWORD)
    junk, heartbeat = b"x" * RECORD_BYTES, b"x" * HEARTBEAT_BYTES
    options = {**pod.options(), "max_batch_size": 512 * 1024, "request_timeout_ms": 120_000}
    async with AIOKafkaProducer(**options, client_id="flood") as producer:
        for number in range(max(num_bytes // RECORD_BYTES, num_heartbeats)):
            if number < num_heartbeats:
                await producer.send(PREFIX + REPORTS.name, heartbeat)
            if number < num_bytes // RECORD_BYTES:
                await producer.send(PREFIX + METRICS.name, junk)


async def delays(
    pod: Pod, access: KafkaAccess, until: "asyncio.Future[None]"
) -> tuple[float, float]:
    """Medians of samples and of heartbeats, until the future is done, and for 20 at least."""
    samples: list[float] = []
    heartbeats: list[float] = []
    # A partition that is left out of a request, as it was just read, waits for that request to end.
    patience = {"fetch_max_wait_ms": 20}
    async with AIOKafkaConsumer(PREFIX + REPORTS.name, **access.options(), **patience) as reader:
        while len(samples) < 20 or not until.done():
            samples.append(await pod.samples())
            heartbeats.append(await pod.heartbeat(reader, len(samples)))
            await asyncio.sleep(PERIOD_SECONDS)
    return statistics.median(samples), statistics.median(heartbeats)


def log_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("kafka/data/*/*.log"))


async def disk(home: Path, connection: asyncpg.Connection) -> tuple[int, int]:
    """Bytes of the broker's logs and of the database, once they have stood still for a while."""
    seen: list[tuple[int, int]] = []
    while len(seen) < 4 or len({total // MIB for total, _ in seen[-4:]}) > 1:
        logs = await asyncio.to_thread(log_bytes, home)
        size = await connection.fetchval("select pg_database_size(current_database())")
        seen.append((logs, size))
        await asyncio.sleep(1)
    return seen[-1]


@asynccontextmanager
async def platform(home: Path) -> AsyncIterator[tuple[RunningKafka, KafkaAccess, str, str]]:
    """Broker, its rights and quotas, Postgres and the metrics service."""
    async with (
        running_kafka(home / "kafka", users={POD: PASSWORD}) as kafka,
        running_postgres(home / "postgres") as postgres,
    ):
        access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
        await create_topics(access, PREFIX)
        await apply_acls(access, wanted_acls(PREFIX))
        await apply_quotas(access, wanted_quotas())
        async with metrics_service(kafka, postgres.dsn, home / "log") as url:
            yield kafka, access, postgres.dsn, url


async def measure(quick: bool) -> list[Row]:
    num_bytes, num_heartbeats = (20_000_000, 2000) if quick else (400_000_000, 30_000)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with (
            asyncio.timeout(MAX_SECONDS),
            platform(home) as (kafka, access, dsn, url),
            Pod(kafka, url, "victim") as pod,
        ):
            connection = await asyncpg.connect(dsn)
            await pod.samples()
            quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            quiet.set_result(None)
            without = await delays(pod, access, quiet)
            before = await disk(home, connection)
            flooding = asyncio.create_task(flood(access, num_bytes, num_heartbeats))
            during = await delays(pod, access, flooding)
            await flooding
            after = await disk(home, connection)
            await connection.close()
    grown = [new - old for new, old in zip(after, before, strict=True)]
    sent = num_bytes + num_heartbeats * HEARTBEAT_BYTES
    return [
        *(
            Row(
                id=f"flood.{name}",
                what=f"delay of {name} while {sent / 1e6:,.0f} MB of junk are sent",
                ours=f"{1000 * loud:,.0f} ms",
                peer=f"{1000 * still:,.0f} ms (no flood)",
                ratio=loud / still,
                target=f"at most {TARGET_DELAY} x",
                met=loud <= TARGET_DELAY * still,
            )
            for name, loud, still in zip(("samples", "heartbeats"), during, without, strict=True)
        ),
        Row(
            id="flood.disk",
            what=f"disk that {sent / 1e6:,.0f} MB of junk take",
            ours=f"{grown[0] / 1e6:,.0f} MB of Kafka, {grown[1] / 1e6:,.0f} MB of Postgres",
            peer=f"{sent / 1e6:,.0f} MB (as sent)",
            ratio=sum(grown) / sent,
            target=f"as sent and {(PARKED_BYTES + DATABASE_BYTES) / 1e6:,.0f} MB more at most",
            met=sum(grown) <= sent + PARKED_BYTES + DATABASE_BYTES,
        ),
    ]


def main() -> None:
    given = options("flood", "What a flood of one job costs the others")
    publish(asyncio.run(measure(given.quick)), given, ["aiokafka", "asyncpg"])


if __name__ == "__main__":
    main()
