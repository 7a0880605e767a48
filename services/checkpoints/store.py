"""The statements about jobs and their runs: one function each, no rules."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import asyncpg

from drivetrain_schemas.checkpoints import SaveFailure
from drivetrain_schemas.specs import CheckpointPolicy
from services.checkpoints.core.catalogue import Goal
from services.checkpoints.core.retention import Policy
from services.checkpoints.core.saving import Unsaved

# The policy of a job whose request has not arrived yet: the contract's defaults.
_UNTIL_KNOWN = CheckpointPolicy()


@dataclass(frozen=True, slots=True)
class Job:
    """What is known about a job.

    Without a tenant its own events have not arrived yet. `every_seconds` and `every_steps`: the
    interval of its checkpoints, as far as its policy sets one.
    """

    job_id: str
    tenant_id: str | None
    policy: Policy
    metric: str | None
    highest_fence: int
    every_seconds: float | None = None
    every_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a job, and the fence it was granted."""

    run_id: str
    job_id: str
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run fails to save: the newest cause, the step of that save, and all causes so far."""

    reason: SaveFailure
    failed_step: int | None
    announced: frozenset[SaveFailure]


async def known_jobs(connection: asyncpg.Connection, job_ids: Collection[str]) -> list[str]:
    """Those of these jobs that events have named, in the order in which they are locked."""
    rows = await connection.fetch(
        "select job_id from jobs where job_id = any($1) order by job_id", list(job_ids)
    )
    return [row["job_id"] for row in rows]


async def lock_job(connection: asyncpg.Connection, job_id: str) -> Job:
    """The job's row, made where it is missing. Taken first in every transaction about a job."""
    await connection.execute(
        """
        insert into jobs (job_id, keep_last, keep_best) values ($1, $2, $3) on conflict do nothing
        """,
        job_id,
        _UNTIL_KNOWN.keep_last,
        _UNTIL_KNOWN.keep_best,
    )
    row = await connection.fetchrow("select * from jobs where job_id = $1 for update", job_id)
    assert row is not None
    return _job(row)


async def job(connection: asyncpg.Connection, job_id: str) -> Job | None:
    row = await connection.fetchrow("select * from jobs where job_id = $1", job_id)
    return _job(row) if row else None


async def set_policy(connection: asyncpg.Connection, job: Job, *, tenant_id: str) -> None:
    """Store the policy that the job requests."""
    await connection.execute(
        """
        update jobs set tenant_id = $2, keep_last = $3, keep_best = $4, goal = $5, metric = $6,
            every_seconds = $7, every_steps = $8
        where job_id = $1
        """,
        job.job_id,
        tenant_id,
        job.policy.keep_last,
        job.policy.keep_best,
        job.policy.goal,
        job.metric,
        job.every_seconds,
        job.every_steps,
    )


async def raise_fence(connection: asyncpg.Connection, job_id: str, fence: int) -> None:
    """Fences only grow."""
    await connection.execute(
        "update jobs set highest_fence = greatest(highest_fence, $2) where job_id = $1",
        job_id,
        fence,
    )


async def put_run(connection: asyncpg.Connection, run: Run, *, is_live: bool) -> None:
    """A run that has ended stays ended."""
    await connection.execute(
        """
        insert into runs (run_id, job_id, attempt, fence, is_live, ended_at)
        values ($1, $2, $3, $4, $5, case when $5 then null else clock_timestamp() end)
        on conflict (run_id) do update set
            is_live = runs.is_live and excluded.is_live,
            ended_at = coalesce(runs.ended_at, excluded.ended_at)
        """,
        run.run_id,
        run.job_id,
        run.attempt,
        run.fence,
        is_live,
    )


async def run_of_fence(connection: asyncpg.Connection, job_id: str, fence: int) -> Run | None:
    """The run that was granted this fence."""
    row = await connection.fetchrow(
        "select run_id, job_id, attempt, fence from runs where job_id = $1 and fence = $2",
        job_id,
        fence,
    )
    return Run(**dict(row)) if row else None


async def live_run(connection: asyncpg.Connection, job_id: str) -> tuple[Run, Unsaved] | None:
    """The newest live run, and what it has done since its last new checkpoint."""
    row = await connection.fetchrow(
        """
        select run_id, job_id, attempt, fence,
            extract(epoch from clock_timestamp() - coalesce(saved_at, noted_at))::double precision
                as seconds,
            coalesce(step, 0) - greatest(coalesce(first_step, 0), (
                select max(saved.step) from checkpoints as saved
                where saved.job_id = runs.job_id and saved.state = 'good'
                    and saved.fence = runs.fence)) as steps
        from runs where job_id = $1 and is_live order by fence desc limit 1
        """,
        job_id,
    )
    if row is None:
        return None
    run = Run(row["run_id"], row["job_id"], row["attempt"], row["fence"])
    return run, Unsaved(row["seconds"], row["steps"])


async def set_steps(connection: asyncpg.Connection, steps: Mapping[tuple[str, int], int]) -> None:
    """Store how far these live runs are (by id and fence), once per interval of checkpoints."""
    await connection.execute(
        """
        update runs set first_step = coalesce(runs.first_step, new.step), step = new.step
        from unnest($1::text[], $2::bigint[], $3::bigint[]) as new (run_id, fence, step), jobs
        where runs.run_id = new.run_id and runs.fence = new.fence and runs.is_live
            and jobs.job_id = runs.job_id
            and (runs.step is null or new.step >= runs.step + jobs.every_steps)
        """,
        [run_id for run_id, _ in steps],
        [fence for _, fence in steps],
        list(steps.values()),
    )


async def run_ages(
    connection: asyncpg.Connection, job_id: str, fences: Collection[int]
) -> dict[int, float | None]:
    """By fence, the seconds since its run ended; None where it is live."""
    rows = await connection.fetch(
        """
        select fence, extract(epoch from clock_timestamp() - ended_at)::double precision as age
        from runs where job_id = $1 and fence = any($2::bigint[])
        """,
        job_id,
        list(fences),
    )
    return {row["fence"]: row["age"] for row in rows}


async def set_saved(connection: asyncpg.Connection, run_id: str) -> None:
    """The run has a new checkpoint."""
    await connection.execute(
        "update runs set saved_at = clock_timestamp() where run_id = $1", run_id
    )


async def set_restored(connection: asyncpg.Connection, run: Run) -> bool:
    """Note that the run has resumed; False where that is known, or the run is not."""
    row = await connection.fetchval(
        """
        update runs set restored_at = clock_timestamp()
        where run_id = $1 and fence = $2 and restored_at is null returning 1
        """,
        run.run_id,
        run.fence,
    )
    return row is not None


async def failure_of(connection: asyncpg.Connection, run_id: str) -> Failure | None:
    row = await connection.fetchrow(
        "select reason, failed_step, announced from failing_runs where run_id = $1", run_id
    )
    if row is None:
        return None
    announced = frozenset(SaveFailure(reason) for reason in row["announced"])
    return Failure(SaveFailure(row["reason"]), row["failed_step"], announced)


async def put_failure(
    connection: asyncpg.Connection, run_id: str, reason: SaveFailure, failed_step: int | None
) -> None:
    await connection.execute(
        """
        insert into failing_runs (run_id, reason, failed_step, announced)
        values ($1, $2, $3, array[$2])
        on conflict (run_id) do update set
            reason = excluded.reason, failed_step = excluded.failed_step,
            announced = failing_runs.announced || excluded.announced
        """,
        run_id,
        reason,
        failed_step,
    )


async def delete_failure(connection: asyncpg.Connection, run_id: str) -> None:
    await connection.execute("delete from failing_runs where run_id = $1", run_id)


async def count_failing_runs(connection: asyncpg.Connection) -> dict[str, int]:
    """By reason."""
    rows = await connection.fetch("select reason, count(*) from failing_runs group by reason")
    return {row["reason"]: row["count"] for row in rows}


async def prune_runs(connection: asyncpg.Connection, seconds: float, limit: int) -> int:
    """Delete the rows of runs that ended at least this long ago; returns how many."""
    rows = await connection.fetch(
        """
        delete from runs where ctid = any(array(
            select ctid from runs
            where ended_at <= statement_timestamp() - $1 * interval '1 second'
            order by ended_at limit $2))
        returning 1
        """,
        seconds,
        limit,
    )
    return len(rows)


def _job(row: Any) -> Job:
    return Job(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        policy=Policy(row["keep_last"], row["keep_best"], cast("Goal | None", row["goal"])),
        metric=row["metric"],
        highest_fence=row["highest_fence"],
        every_seconds=row["every_seconds"],
        every_steps=row["every_steps"],
    )
