"""How fast the gateway's read model is built from offset 0, and whether its memory stays flat.

A generated history (jobs with retries, checkpoints and charges, a study's trials, nodes) is written
to a real Kafka; then the gateway starts as a process of its own over an empty schema in a real
Postgres. The peer is the gateway of commit 3455aa9, measured by this script on the same machine:
one transaction and several statements per event.
"""

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.report import Row, options, publish
from drivetrain_schemas.envelope import Event
from services.gateway.settings import GatewaySettings
from services.gateway.wiring import build
from services.runtime import logs
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.service import run
from services.runtime.topics import create_topics
from services.standalone.embedded import running_kafka, running_postgres
from services.standalone.ports import free_port
from tests.handlers.gateway.story import Story, search
from tests.platform_service import out_record, service_environment

TITLE = "The gateway's read model from offset 0"
MEASURES = (
    "services/gateway/core",
    "services/gateway/handlers.py",
    "services/gateway/store.py",
    "services/runtime/consumer.py",
    "services/runtime/decoding.py",
    "services/runtime/processing.py",
    "services/runtime/transaction.py",
)
NOTES = """
The gateway as a process of its own, from its first projected event to the last: jobs with
retries, checkpoints and charges, a study's trials, nodes, all from Kafka into Postgres. Its start
is not counted. The peer is the gateway of commit 3455aa9 with one transaction per event, measured
once by this script on this kind of machine beside other work, not again in each run. Up to 200
events share a transaction, with one statement per noun to load views and one to save them.
"""

BASELINE_EVENTS_PER_SECOND = 156.0
TARGET = 10.0
MAX_GROWTH = 1.3
PREFIX = "rebuild."
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def history() -> Iterator[Event[Any]]:
    """An endless stream of a platform's events, in order."""
    story = Story()
    story.nodes(*(f"node-{number}" for number in range(8)), slots=8)
    search(story, num_trials=40)
    for number in count():
        job = story.job(f"job-{number}")
        job.waits(3)
        job.starts()
        kept = [job.saves(step, 0.5 + step / 1000) for step in (100, 200)]
        if number % 4 == 0:
            job.fails("ValueError: loss is not finite\n" * 20)
            job.retries()
            job.starts()
            job.resumes(kept[-1], 200)
        kept += [job.saves(step, 0.5 + step / 1000) for step in (300, 400)]
        job.loses(kept[0], 100)
        job.succeeds()
        yield from story.events
        story.events.clear()


def serve(environment: dict[str, Any]) -> None:
    """The gateway, in a process of its own."""
    logs.configure("gateway", "warning")
    asyncio.run(run(build(GatewaySettings.model_validate(environment))))


async def measure(num_events: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            running_postgres(folder / "postgres") as postgres,
            running_kafka(folder / "kafka") as broker,
        ):
            access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
            await create_topics(access, PREFIX)
            await produce(access, num_events)
            environment = {
                **service_environment(access, postgres.dsn, PREFIX),
                "api_token": "a-token-for-the-benchmark",
                "cookie_secret": "a-cookie-secret-for-the-benchmark",
                "http_port": free_port(),
                "ops_port": free_port(),
            }
            gateway = multiprocessing.get_context("spawn").Process(
                target=serve, args=(environment,), daemon=True
            )
            gateway.start()
            assert gateway.pid is not None
            try:
                rate, early, peak = await follow(postgres.dsn, gateway.pid, num_events)
            finally:
                gateway.terminate()
                gateway.join(20)
    return rows(num_events, rate, early, peak)


async def produce(access: KafkaAccess, num_events: int) -> None:
    publisher = KafkaPublisher(access, "bench")
    source = islice(history(), num_events)
    while events := list(islice(source, 500)):
        await publisher.publish([out_record(event, PREFIX) for event in events])
    await publisher.close()


async def follow(dsn: str, pid: int, num_events: int) -> tuple[float, int, int]:
    """Events per second from the first to the last; memory after a fifth of them, and its peak."""
    connection = await asyncpg.connect(dsn)
    began, early, peak = 0.0, 0, 0
    first = 0
    try:
        while True:
            done = await projected(connection)
            now = time.perf_counter()
            resident = resident_bytes(pid)
            if done > 0 and not began:
                began, first = now, done
            if done >= num_events // 5:
                early = early or resident
                peak = max(peak, resident)
            if done >= num_events:
                return (done - first) / (now - began), early, peak
            await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def projected(connection: asyncpg.Connection) -> int:
    try:
        return int(await connection.fetchval("select last_cursor from gateway.stream"))
    except asyncpg.UndefinedTableError:
        return 0


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def rows(num_events: int, rate: float, early: int, peak: int) -> list[Row]:
    ratio = rate / BASELINE_EVENTS_PER_SECOND
    growth = peak / early
    return [
        Row(
            id="rebuild",
            what=f"gateway's read model from offset 0, {num_events:,} events",
            ours=f"{rate:,.0f}/s",
            peer=f"{BASELINE_EVENTS_PER_SECOND:,.0f}/s (one transaction per event, 3455aa9)",
            ratio=ratio,
            target=f"at least {TARGET:g} x",
            met=ratio >= TARGET,
        ),
        Row(
            id="rebuild_memory",
            what="memory of the gateway in the rebuild, peak against a fifth of the way",
            ours=f"{peak / 2**20:,.0f} MiB",
            peer=f"{early / 2**20:,.0f} MiB",
            ratio=growth,
            target=f"at most {MAX_GROWTH} x",
            met=growth <= MAX_GROWTH,
        ),
    ]


def main() -> None:
    given = options("rebuild", "Rebuild of the gateway's read model")
    logs.configure("bench", "warning")
    num_events = 2_000 if given.quick else 200_000
    publish(asyncio.run(measure(num_events)), given, ["aiokafka", "asyncpg"])


if __name__ == "__main__":
    main()
