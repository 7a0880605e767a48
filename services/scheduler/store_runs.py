"""The scheduler's table of runs: one function per statement."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.runs import RunState, WaitCause
from services.scheduler.core.waits import Wait


@dataclass(frozen=True, slots=True)
class RunRow:
    """A live run. `unreachable`: its nodes that were announced not to answer; `waiting`: why it was
    announced not to run yet."""

    run_id: str
    job_id: str
    attempt: int
    fence: int
    state: RunState
    master_port: int
    device_type: str
    stop_reason: str | None = None
    unreachable: tuple[str, ...] = ()
    waiting: Wait | None = None


@dataclass(frozen=True, slots=True)
class RestartTimes:
    """When a job's last run ended, and its next one was granted and started."""

    ended_at: datetime
    granted_at: datetime
    started_at: datetime


async def next_fences(connection: asyncpg.Connection, number: int) -> list[int]:
    """Each higher than any before, for this job and every other."""
    rows = await connection.fetch(
        "select nextval('fences') as fence from generate_series(1, $1::int)", number
    )
    return [row["fence"] for row in rows]


async def next_fence(connection: asyncpg.Connection) -> int:
    """Without drawing it, so another run may get it."""
    fence: int = await connection.fetchval("select last_value + is_called::int from fences")
    return fence


async def insert_runs(
    connection: asyncpg.Connection, planned: Sequence[tuple[RunRow, datetime]]
) -> None:
    """Each with the time at which its slots were granted."""
    await connection.executemany(
        """insert into runs
            (run_id, job_id, attempt, fence, state, master_port, device_type, granted_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8)""",
        [
            (
                run.run_id,
                run.job_id,
                run.attempt,
                run.fence,
                str(run.state),
                run.master_port,
                run.device_type,
                granted_at,
            )
            for run, granted_at in planned
        ],
    )


async def live_runs(connection: asyncpg.Connection) -> tuple[RunRow, ...]:
    rows = await connection.fetch("select * from runs where ended_at is null order by run_id")
    return tuple(_run(row) for row in rows)


async def live_runs_of(
    connection: asyncpg.Connection, job_ids: Collection[str]
) -> tuple[RunRow, ...]:
    """The live runs of these jobs, at most one each."""
    rows = await connection.fetch(
        "select * from runs where ended_at is null and job_id = any($1)", list(job_ids)
    )
    return tuple(_run(row) for row in rows)


async def start_runs(
    connection: asyncpg.Connection, states: Mapping[str, RunState]
) -> Mapping[str, datetime]:
    """By run id: when it was started."""
    rows = await connection.fetch(
        """update runs set state = new.state,
            started_at = greatest(granted_at, clock_timestamp())
        from unnest($1::text[], $2::text[]) as new (run_id, state)
        where runs.run_id = new.run_id returning runs.run_id, started_at""",
        list(states),
        [str(state) for state in states.values()],
    )
    return {row["run_id"]: row["started_at"] for row in rows}


async def restart_times(
    connection: asyncpg.Connection, run_ids: Collection[str]
) -> tuple[RestartTimes, ...]:
    """Of those of these started runs that have one before them."""
    rows = await connection.fetch(
        """select last.ended_at, runs.granted_at, runs.started_at from runs
        join runs as last on last.job_id = runs.job_id and last.attempt = runs.attempt - 1
        where runs.run_id = any($1)""",
        list(run_ids),
    )
    return tuple(RestartTimes(**row) for row in rows)


async def set_run_state(connection: asyncpg.Connection, run_id: str, state: RunState) -> None:
    await connection.execute("update runs set state = $2 where run_id = $1", run_id, str(state))


async def set_unreachable(
    connection: asyncpg.Connection, run_id: str, node_ids: Collection[str]
) -> None:
    await connection.execute(
        "update runs set unreachable = $2 where run_id = $1", run_id, list(node_ids)
    )


async def set_waiting(connection: asyncpg.Connection, run_id: str, wait: Wait | None) -> None:
    told = [] if wait is None else [str(wait.cause), wait.by, wait.detail]
    await connection.execute("update runs set waiting = $2 where run_id = $1", run_id, told)


async def stop_run(
    connection: asyncpg.Connection, run_id: str, state: RunState, reason: str
) -> None:
    """The loop is not the only writer of this, so the job's change number is raised as well."""
    await connection.execute(
        """with stopped as (
            update runs set state = $2, stop_reason = $3 where run_id = $1 returning job_id)
        update jobs set change = nextval('job_changes') from stopped
        where jobs.job_id = stopped.job_id""",
        run_id,
        str(state),
        reason,
    )


async def end_runs(
    connection: asyncpg.Connection, states: Mapping[str, RunState]
) -> Mapping[str, datetime]:
    """By run id: when it ended."""
    rows = await connection.fetch(
        """update runs set state = new.state,
            ended_at = greatest(granted_at, clock_timestamp())
        from unnest($1::text[], $2::text[]) as new (run_id, state)
        where runs.run_id = new.run_id returning runs.run_id, ended_at""",
        list(states),
        [str(state) for state in states.values()],
    )
    return {row["run_id"]: row["ended_at"] for row in rows}


def _run(row: Any) -> RunRow:
    return RunRow(
        run_id=row["run_id"],
        job_id=row["job_id"],
        attempt=row["attempt"],
        fence=row["fence"],
        state=RunState(row["state"]),
        master_port=row["master_port"],
        device_type=row["device_type"],
        stop_reason=row["stop_reason"],
        unreachable=tuple(row["unreachable"]),
        waiting=_wait(*row["waiting"]) if row["waiting"] else None,
    )


def _wait(cause: str, by: str, detail: str) -> Wait:
    return Wait(WaitCause(cause), by, detail)
