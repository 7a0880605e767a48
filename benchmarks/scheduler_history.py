"""The statements of the scheduler on tables of a year: `python -m benchmarks.scheduler_history`.

Fills the tables with 2,000,000 ended jobs, lets jobs be submitted, run, fail, retry, be cancelled
and succeed, and prints for each statement that this took how long it runs and whether it scans a
table; the rows sum this up. A statement that is independent of history takes as long as on empty
tables.
"""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from benchmarks.report import Row, options, publish
from drivetrain_schemas.ids import job_id_for, pod_id_for
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.transaction import Origin
from services.scheduler import early_commands
from services.scheduler.kept_directories import KeptDirectories
from services.standalone.embedded import running_postgres
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit

TITLE = "A scheduler's tables of a year"
MEASURES = (
    "services/scheduler/early_commands.py",
    "services/scheduler/kept_directories.py",
    "services/scheduler/store.py",
    "services/scheduler/store_allocations.py",
    "services/scheduler/store_pods.py",
    "services/scheduler/store_runs.py",
)
NOTES = """
Every statement of jobs that are submitted, run, fail, retry, are cancelled and succeed, beside
jobs that ended long ago: whether its plan reads a table that grows with history from one end to
the other, and how long it takes. Six jobs on two nodes: what grows with the work that runs does
not show here.
"""

_BATCH = 100_000
# The table of nodes has as many rows as there are nodes.
GROWING = {"jobs", "runs", "allocations", "allocation_slots", "pods"}
_FILL = [
    """insert into jobs (job_id, tenant_id, request_id, command_event_id, spec, pool, devices,
        priority, state, num_runs, queued_at, finished_at, pods_removed_at)
    select 'job_old' || n, 'default', 'old' || n, 'event' || n,
        '{"name": "old", "command": ["python", "train.py"]}', 'default', 1, 0, 'succeeded', 1,
        now() - interval '1 day', now(), now() from generate_series($1::int, $2::int) as n""",
    """insert into runs (run_id, job_id, attempt, fence, state, master_port, device_type,
        granted_at, started_at, ended_at)
    select 'run_old' || n, 'job_old' || n, 1, nextval('fences'), 'succeeded', 20000, 'cpu',
        now(), now(), now() from generate_series($1::int, $2::int) as n""",
    """insert into allocations (allocation_id, run_id, job_id, pool, device_type, granted_at,
        released_at)
    select 'alloc_old' || n, 'run_old' || n, 'job_old' || n, 'default', 'cpu', now(), now()
    from generate_series($1::int, $2::int) as n""",
    """insert into allocation_slots (allocation_id, node_id, slot, released_at)
    select 'alloc_old' || n, 'n' || 1 + n % 2, n / 2 % 2, now()
    from generate_series($1::int, $2::int) as n""",
    """insert into pods (pod_id, run_id, index, node_id, first_rank, num_ranks, state, launches,
        was_alive, finished_at)
    select 'pod_old' || n, 'run_old' || n, 0, 'n1', 0, 1, 'ended', 1, true, now()
    from generate_series($1::int, $2::int) as n""",
]


@dataclass(slots=True)
class Executed:
    """A statement, its last arguments, and how long each execution took."""

    arguments: Sequence[Any]
    seconds: list[float]


class RecordingDatabase(Database):
    """Notes every statement."""

    executed: dict[str, Executed]

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[asyncpg.Connection]:
        async with super()._acquired() as connection:
            with connection.query_logger(self._note):
                yield connection

    def _note(self, query: Any) -> None:
        if query.query.lstrip().split(maxsplit=1)[0].lower() in _PLANNED:
            arguments = query.args[0] if isinstance(query.args, list) else query.args
            known = self.executed.setdefault(query.query, Executed((), []))
            known.arguments = arguments
            known.seconds.append(query.elapsed)


_PLANNED = ("select", "insert", "update", "delete", "with")


async def fill(connection: asyncpg.Connection, num_jobs: int) -> None:
    """Insert this many jobs that ended long ago, each with its run, slot and pod."""
    for first in range(1, num_jobs + 1, _BATCH):
        for statement in _FILL:
            last = min(first + _BATCH - 1, num_jobs)
            await connection.execute(statement, first, last, timeout=600)
    await connection.execute("analyze", timeout=600)


async def work(world: World, num_jobs: int) -> dict[str, Executed]:
    """The statements of jobs that are queued, wait, run, fail, retry, are cancelled and succeed."""
    async with world.database.connection() as connection:
        await fill(connection, num_jobs)
    database = world.database
    database.__class__ = RecordingDatabase
    assert isinstance(database, RecordingDatabase)
    database.executed = {}
    jobs = [job_id_for("default", f"r{number}") for number in range(6)]
    await world.cancel(jobs[5])
    for number in range(6):
        await world.submit(make_submit(f"r{number}", retries={"limit": 1, "backoff_seconds": 0}))
    await world.rounds()
    world.launcher.end(pod_id_for(jobs[0], 1, 0), "failed")
    await world.rounds()
    await world.cancel(jobs[1])
    await world.rounds()
    world.launcher.end(pod_id_for(jobs[1], 1, 0), "interrupted")
    await world.rounds()
    for pod_id in [pod_id_for(jobs[0], 2, 0), *(pod_id_for(job, 1, 0) for job in jobs[2:5])]:
        world.launcher.end(pod_id)
    await world.rounds()
    await world.clock.advance(60)  # a resync
    await world.rounds()
    world.restart()
    await world.rounds()
    async with database.transaction() as tx:
        await early_commands.expire_once(tx)
    kept = KeptDirectories(world.launcher, max_jobs=1, max_bytes=10**9)
    await kept.remove_old(world.platform)
    return database.executed


def scans(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that grow with history and that this plan reads from one end to the other."""
    if plan["Node Type"] == "Seq Scan" and plan["Relation Name"] in GROWING:
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scans(part)


async def plan_of(
    connection: asyncpg.Connection, statement: str, arguments: Sequence[Any]
) -> dict[str, Any]:
    text = await connection.fetchval(f"explain (format json) {statement}", *arguments)
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


async def measure(num_jobs: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        async with running_postgres(Path(name)) as postgres:
            origin = Origin("/drivetrain/scheduler", "drivetrain.")
            database = Database(postgres.dsn, "scheduler", origin)
            await database.open(["services.scheduler"])
            world = await World(database, FakeLauncher()).register()
            executed = await work(world, num_jobs)
            scanned = {}
            async with database.connection() as connection:
                for statement, each in executed.items():
                    plan = await plan_of(connection, statement, each.arguments)
                    scanned[statement] = list(scans(plan))
            await database.close()
    _print(executed, scanned)
    return rows(num_jobs, executed, scanned)


def _print(executed: dict[str, Executed], scanned: dict[str, list[str]]) -> None:
    table = Table("longest", "median", "scans", "statement")
    for statement, each in sorted(executed.items(), key=lambda item: -max(item[1].seconds)):
        times = (max(each.seconds), statistics.median(each.seconds))
        table.add_row(
            *(f"{1000 * seconds:.2f} ms" for seconds in times),
            ", ".join(scanned[statement]),
            " ".join(statement.split())[:90],
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def rows(num_jobs: int, executed: dict[str, Executed], scanned: dict[str, list[str]]) -> list[Row]:
    beside = f"beside {num_jobs:,} ended jobs"
    num_scanning = sum(bool(tables) for tables in scanned.values())
    slowest = max(statistics.median(each.seconds) for each in executed.values()) * 1000
    longest = max(max(each.seconds) for each in executed.values()) * 1000
    return [
        Row(
            id="scheduler_history.scans",
            what=f"statements that read a growing table from end to end, {beside}",
            ours=f"{num_scanning} of {len(scanned)}",
            peer="",
            ratio=None,
            target="0",
            met=num_scanning == 0,
        ),
        Row(
            id="scheduler_history.median",
            what=f"the slowest statement, median, {beside}",
            ours=f"{slowest:.1f} ms (longest single execution of all {longest:.1f} ms)",
            peer="",
            ratio=None,
            target="",
            met=True,
        ),
    ]


def main() -> None:
    given = options("scheduler_history", "The scheduler's statements on tables of a year")
    logs.configure("bench", "error")
    rows = asyncio.run(measure(20_000 if given.quick else 2_000_000))
    publish(rows, given, ["asyncpg"])


if __name__ == "__main__":
    main()
