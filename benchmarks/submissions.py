"""How many submissions a second a busy scheduler accepts, and how long a decision takes.

Commands are in Kafka; the clock runs until the last of them is a committed row with its event in
the outbox. Busy: 1,000 jobs run and 10,000 of many kinds wait, on 125 nodes of 8 slots and on
1,000, while some 20 runs a second end and others start. The peer is the same scheduler on the same
nodes with nothing else to do. Pods are simulated; everything else is real, in one process.
"""

import asyncio
import contextlib
import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import asyncpg

from benchmarks.report import Row, options, publish
from benchmarks.scheduler_load import (
    TimedPods,
    nodes,
    records,
    scheduler,
    send,
    submission,
    until,
)
from drivetrain_schemas.jobs import JobSubmit
from services.runtime import logs
from services.runtime.kafka_access import KafkaAccess
from services.runtime.service import Running
from services.scheduler import loop
from services.scheduler.core.cycle import Decision, decide
from services.scheduler.core.snapshot import Snapshot
from services.standalone.embedded import running_kafka, running_postgres

TITLE = "A busy scheduler"
MEASURES = (
    "services/scheduler/core",
    "services/scheduler/handlers.py",
    "services/scheduler/job_commands.py",
    "services/scheduler/loop.py",
    "services/scheduler/projection.py",
    "services/scheduler/state.py",
    "services/scheduler/store.py",
    "services/runtime/consumer.py",
    "services/runtime/processing.py",
    "services/runtime/transaction.py",
)
NOTES = """
The scheduler alone, in one process over Kafka and Postgres, with simulated pods: the commands are
written to Kafka, and the clock runs until the last is a committed row with its event in the
outbox. Nothing of REST, the gateway or the packing of code is in it. While submissions are
measured, some 20 runs a second end and others start. The peer is the same scheduler on the same
nodes with nothing running or waiting.
"""

TARGET = 0.5
NUM_NODES = (125, 1000)
# A decision on the larger fleet is compared with one on the smaller.
DECIDE_TARGET_MS = 50
DECIDE_TARGET = 5
NUM_RUNNING = 1000
ENDS_PER_SECOND = 20


def main() -> None:
    given = options("submissions", "Submissions accepted by a busy scheduler")
    logs.configure("bench", "error")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    rows = asyncio.run(measure(given.quick))
    publish(rows, given, ["aiokafka", "asyncpg"])


async def measure(quick: bool) -> list[Row]:
    num_waiting, num_measured = (500, 200) if quick else (10_000, 4000)
    sizes = NUM_NODES[:1] if quick else NUM_NODES
    rows: list[Row] = []
    p99: float | None = None
    gc.freeze()  # as a service does
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            running_postgres(folder / "postgres") as postgres,
            running_kafka(folder / "kafka") as broker,
        ):
            access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
            for num_nodes in sizes:
                bench = Bench(access, postgres.dsn, num_nodes)
                row, seconds = await bench.measure(num_waiting, num_measured)
                rows += [row, decision_row(num_nodes, num_waiting, seconds, p99)]
                p99 = percentile_99(seconds)
    return rows


def decision_row(
    num_nodes: int, num_waiting: int, seconds: Sequence[float], smaller: float | None
) -> Row:
    """How long decisions took; `smaller`: the p99 of the fleet before this one."""
    p99 = percentile_99(seconds)
    ratio = 1000 * p99 / DECIDE_TARGET_MS if smaller is None else p99 / smaller
    target = f"at most {DECIDE_TARGET_MS} ms" if smaller is None else f"at most {DECIDE_TARGET} x"
    return Row(
        id=f"decide.{num_nodes}",
        what=f"one decision (processor), p99 of {len(seconds):,}, {shape(num_nodes, num_waiting)}",
        ours=f"{1000 * p99:.1f} ms (median {1000 * statistics.median(seconds):.1f})",
        peer="" if smaller is None else f"{1000 * smaller:.1f} ms ({NUM_NODES[0]} nodes)",
        ratio=ratio,
        target=target,
        met=ratio <= (1 if smaller is None else DECIDE_TARGET),
    )


def percentile_99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def shape(num_nodes: int, num_waiting: int) -> str:
    return f"{num_nodes} nodes of 8, {NUM_RUNNING:,} running, {num_waiting:,} waiting"


class Bench:
    """One size of the platform."""

    def __init__(self, access: KafkaAccess, dsn: str, num_nodes: int) -> None:
        self._access = access
        self._dsn = dsn
        self._num_nodes = num_nodes

    async def measure(self, num_waiting: int, num_measured: int) -> tuple[Row, list[float]]:
        """The rate, and the seconds of each decision."""
        idle = await self._run("idle", 0, num_measured)
        with timed_decisions() as seconds:
            busy = await self._run("busy", num_waiting, num_measured, seconds)
        ratio = busy / idle
        row = Row(
            id=f"submissions.{self._num_nodes}",
            what=f"submissions accepted, {shape(self._num_nodes, num_waiting)}",
            ours=f"{busy:,.0f}/s",
            peer=f"{idle:,.0f}/s (nothing running or waiting)",
            ratio=ratio,
            target=f"at least {TARGET} x",
            met=ratio >= TARGET,
        )
        return row, seconds

    async def _run(
        self, name: str, num_waiting: int, num_measured: int, seconds: list[float] | None = None
    ) -> float:
        """Submissions a second. Those that are measured all wait: in a full pool of one slot, or
        behind all others."""
        prefix = f"{name}{self._num_nodes}."
        pods = TimedPods(seconds=3600)
        pool = "default" if num_waiting else "full"
        measured = [submission(f"m{number}", 1, -1, pool) for number in range(num_measured)]
        on = nodes(self._num_nodes) + nodes(1, 1, "full")
        async with scheduler(self._access, self._dsn, prefix, on, pods) as process:
            await self._send(process, prefix, [submission("first", pool="full")])
            await until(process, "select count(*) = 1 from runs where started_at is not null")
            if num_waiting:
                await self._fill(process, prefix, num_waiting)
            commands = records(prefix, measured)
            churn = asyncio.create_task(end_runs(pods)) if num_waiting else None
            if seconds is not None:
                seconds.clear()
            began = time.perf_counter()
            await send(self._access, commands)
            await until(
                process, "select count(*) = $1 from jobs where request_id like 'm%'", num_measured
            )
            rate = num_measured / (time.perf_counter() - began)
            if churn is not None:
                churn.cancel()
        await drop(self._dsn)
        return rate

    async def _fill(self, process: Running, prefix: str, num_waiting: int) -> None:
        """As many run as there is room for 1,000 of one size; the others wait."""
        devices = self._num_nodes * 8 // NUM_RUNNING
        running = [submission(f"r{number}", devices, 9) for number in range(NUM_RUNNING)]
        await self._send(process, prefix, running)
        await until(
            process,
            "select count(*) = $1 from runs where started_at is not null and ended_at is null",
            NUM_RUNNING + 1,
        )
        waiting = [
            submission(f"w{number}", 1 + number % 8, number // 8 % 4)
            for number in range(num_waiting)
        ]
        await self._send(process, prefix, waiting)
        await until(
            process,
            "select count(*) = 0 from jobs where state = 'queued' and waiting_reason is null",
        )

    async def _send(self, process: Running, prefix: str, submissions: Sequence[JobSubmit]) -> None:
        await send(self._access, records(prefix, submissions))
        await until(
            process,
            "select count(*) = $1 from jobs where request_id = any($2)",
            len(submissions),
            [payload.request_id for payload in submissions],
        )


async def end_runs(pods: TimedPods) -> None:
    while True:
        await asyncio.sleep(1 / ENDS_PER_SECOND)
        pods.end_some(1)


@contextlib.contextmanager
def timed_decisions() -> Iterator[list[float]]:
    """The processor time of each decision of the loop: it waits for nothing."""
    seconds: list[float] = []

    def timed(snapshot: Snapshot, now: datetime) -> Decision:
        began = time.thread_time()
        try:
            return decide(snapshot, now)
        finally:
            seconds.append(time.thread_time() - began)

    setattr(loop, "decide", timed)  # noqa: B010
    try:
        yield seconds
    finally:
        setattr(loop, "decide", decide)  # noqa: B010


async def drop(dsn: str) -> None:
    """The scheduler's schema, for the next platform to begin with none."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("drop schema scheduler cascade")
    await connection.close()


if __name__ == "__main__":
    main()
