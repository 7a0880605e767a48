"""The statements of the checkpoints service: one function each, no rules."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import asyncpg

from services.checkpoints.core.catalogue import Checkpoint, Goal
from services.checkpoints.core.retention import Policy

State = Literal["good", "rejected", "deleting", "deleted"]
Kind = Literal["list", "verify", "restore", "delete"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job. No tenant: its own events are not here yet."""

    job_id: str
    tenant_id: str | None
    policy: Policy
    metric: str | None
    highest_fence: int


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint, whatever became of it."""

    checkpoint_id: str
    job_id: str
    manifest_key: str
    run_id: str
    attempt: int
    fence: int
    step: int
    state: State
    size_bytes: int = 0
    metrics: Mapping[str, float] | None = None
    is_pinned: bool = False
    may_lead: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """Something to be done at the object store."""

    kind: Kind
    job_id: str
    subject: str
    facts: Mapping[str, Any]
    revision: int
    tries: int


async def lock_job(connection: asyncpg.Connection, job_id: str) -> Job:
    """The job's row, made where it is missing. Taken first in every transaction about a job."""
    await connection.execute("insert into jobs (job_id) values ($1) on conflict do nothing", job_id)
    row = await connection.fetchrow("select * from jobs where job_id = $1 for update", job_id)
    assert row is not None
    return _job(row)


async def job(connection: asyncpg.Connection, job_id: str) -> Job | None:
    row = await connection.fetchrow("select * from jobs where job_id = $1", job_id)
    return _job(row) if row else None


async def set_policy(
    connection: asyncpg.Connection,
    job_id: str,
    tenant_id: str,
    policy: Policy,
    metric: str | None,
) -> None:
    await connection.execute(
        """
        update jobs set tenant_id = $2, keep_last = $3, keep_best = $4, goal = $5, metric = $6
        where job_id = $1
        """,
        job_id,
        tenant_id,
        policy.keep_last,
        policy.keep_best,
        policy.goal,
        metric,
    )


async def raise_fence(connection: asyncpg.Connection, job_id: str, fence: int) -> None:
    """Fences only grow."""
    await connection.execute(
        "update jobs set highest_fence = greatest(highest_fence, $2) where job_id = $1",
        job_id,
        fence,
    )


async def put_run(
    connection: asyncpg.Connection,
    run_id: str,
    job_id: str,
    place: tuple[int, int],
    *,
    is_live: bool,
) -> None:
    """`place`: attempt and fence. A run that has ended stays ended."""
    await connection.execute(
        """
        insert into runs (run_id, job_id, attempt, fence, is_live) values ($1, $2, $3, $4, $5)
        on conflict (run_id) do update set is_live = runs.is_live and excluded.is_live
        """,
        run_id,
        job_id,
        *place,
        is_live,
    )


async def run_of_fence(
    connection: asyncpg.Connection, job_id: str, fence: int
) -> tuple[str, int] | None:
    """The run that was granted this fence, and its attempt."""
    row = await connection.fetchrow(
        "select run_id, attempt from runs where job_id = $1 and fence = $2", job_id, fence
    )
    return (row["run_id"], row["attempt"]) if row else None


async def has_live_run(connection: asyncpg.Connection, job_id: str) -> bool:
    found = await connection.fetchval(
        "select exists (select from runs where job_id = $1 and is_live)", job_id
    )
    return bool(found)


async def insert_checkpoint(connection: asyncpg.Connection, row: CheckpointRow) -> None:
    await connection.execute(
        """
        insert into checkpoints
            (checkpoint_id, job_id, manifest_key, run_id, attempt, fence, step, state, size_bytes,
             metrics, is_pinned, may_lead)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        """,
        row.checkpoint_id,
        row.job_id,
        row.manifest_key,
        row.run_id,
        row.attempt,
        row.fence,
        row.step,
        row.state,
        row.size_bytes,
        row.metrics or {},
        row.is_pinned,
        row.may_lead,
    )


async def checkpoint(
    connection: asyncpg.Connection, job_id: str, checkpoint_id: str
) -> CheckpointRow | None:
    row = await connection.fetchrow(
        "select * from checkpoints where job_id = $1 and checkpoint_id = $2", job_id, checkpoint_id
    )
    return _checkpoint(row) if row else None


async def checkpoints_of_job(connection: asyncpg.Connection, job_id: str) -> list[CheckpointRow]:
    rows = await connection.fetch("select * from checkpoints where job_id = $1", job_id)
    return [_checkpoint(row) for row in rows]


async def good_checkpoints(connection: asyncpg.Connection, job: Job) -> list[Checkpoint]:
    """Verified, not rejected since, not being deleted."""
    rows = await connection.fetch(
        """
        select checkpoint_id, fence, step, (metrics ->> $2)::double precision as value, is_pinned,
            may_lead
        from checkpoints where job_id = $1 and state = 'good'
        """,
        job.job_id,
        job.metric or "",
    )
    return [Checkpoint(**dict(row)) for row in rows]


async def set_state(connection: asyncpg.Connection, checkpoint_id: str, state: State) -> None:
    await connection.execute(
        "update checkpoints set state = $2 where checkpoint_id = $1", checkpoint_id, state
    )


async def set_pinned(connection: asyncpg.Connection, checkpoint_id: str) -> None:
    await connection.execute(
        "update checkpoints set is_pinned = true where checkpoint_id = $1", checkpoint_id
    )


async def let_lead(connection: asyncpg.Connection, checkpoint_id: str) -> None:
    await connection.execute(
        "update checkpoints set may_lead = true where checkpoint_id = $1", checkpoint_id
    )


async def want(
    connection: asyncpg.Connection,
    kind: Kind,
    job_id: str,
    subject: str = "",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Note that this is to be done, now."""
    await connection.execute(
        """
        insert into intents (kind, job_id, subject, facts) values ($1, $2, $3, $4)
        on conflict (kind, job_id, subject) do update set
            facts = excluded.facts, revision = intents.revision + 1, tries = 0,
            due_at = clock_timestamp()
        """,
        kind,
        job_id,
        subject,
        dict(facts or {}),
    )


async def want_if_unknown(
    connection: asyncpg.Connection, kind: Kind, job_id: str, subject: str
) -> None:
    """Note that this is to be done, unless it is noted."""
    await connection.execute(
        "insert into intents (kind, job_id, subject) values ($1, $2, $3) on conflict do nothing",
        kind,
        job_id,
        subject,
    )


async def due_intents(
    connection: asyncpg.Connection, busy_jobs: Collection[str], limit: int
) -> list[Intent]:
    """What is to be done now, at most one of each job, none of a busy one."""
    rows = await connection.fetch(
        """
        select * from (
            select distinct on (job_id) * from intents
            where due_at <= clock_timestamp() and job_id <> all($1::text[])
            order by job_id, due_at
        ) as first_of_job
        order by due_at limit $2
        """,
        list(busy_jobs),
        limit,
    )
    return [
        Intent(
            kind=row["kind"],
            job_id=row["job_id"],
            subject=row["subject"],
            facts=row["facts"],
            revision=row["revision"],
            tries=row["tries"],
        )
        for row in rows
    ]


async def finish(connection: asyncpg.Connection, intent: Intent) -> bool:
    """Done with it. False where it was asked for again meanwhile, so it is not."""
    row = await connection.fetchval(
        """
        delete from intents where kind = $1 and job_id = $2 and subject = $3 and revision = $4
        returning 1
        """,
        intent.kind,
        intent.job_id,
        intent.subject,
        intent.revision,
    )
    return row is not None


async def postpone(
    connection: asyncpg.Connection, intent: Intent, seconds: float, *, is_failure: bool
) -> None:
    """Not now; where it was asked for again meanwhile, it stays due."""
    await connection.execute(
        """
        update intents set
            due_at = clock_timestamp() + $5 * interval '1 second',
            tries = case when $6 then tries + 1 else 0 end
        where kind = $1 and job_id = $2 and subject = $3 and revision = $4
        """,
        intent.kind,
        intent.job_id,
        intent.subject,
        intent.revision,
        seconds,
        is_failure,
    )


def _job(row: Any) -> Job:
    return Job(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        policy=Policy(row["keep_last"], row["keep_best"], cast("Goal | None", row["goal"])),
        metric=row["metric"],
        highest_fence=row["highest_fence"],
    )


def _checkpoint(row: Any) -> CheckpointRow:
    return CheckpointRow(
        checkpoint_id=row["checkpoint_id"],
        job_id=row["job_id"],
        manifest_key=row["manifest_key"],
        run_id=row["run_id"],
        attempt=row["attempt"],
        fence=row["fence"],
        step=row["step"],
        state=row["state"],
        size_bytes=row["size_bytes"],
        metrics=row["metrics"],
        is_pinned=row["is_pinned"],
        may_lead=row["may_lead"],
    )
