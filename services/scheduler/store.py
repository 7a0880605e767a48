"""The scheduler's tables of jobs and nodes: one function per statement, typed, no rules.

Whoever writes state first takes `lock`, the scheduler's one writer lock, for the transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.base import canonical_json
from drivetrain_schemas.envelope import Cause, Event
from drivetrain_schemas.jobs import JobSpec, JobState, JobSubmit, TrialOf
from services.scheduler.core.model import Node, QueuedJob
from services.scheduler.core.reasons import SET_ASIDE, Waiting

# One key per schema, so that schedulers of different platforms in one Postgres do not meet.
_LOCK = "select pg_advisory_xact_lock(hashtextextended(current_schema() || '/writer', 0))"
_LEAD = "select pg_try_advisory_lock(hashtextextended(current_schema() || '/leader', 0))"
MAX_WAITING = 2000
MAX_TOLD = 200  # in one round


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it is stored."""

    job_id: str
    tenant_id: str
    request_id: str
    command_event_id: str
    correlation_id: str | None
    traceparent: str | None
    spec: JobSpec
    trial: TrialOf | None
    state: JobState
    num_runs: int
    num_failures: int
    num_self_interruptions: int
    is_cancelled: bool
    cancel_reason: str
    queued_at: datetime

    @property
    def cause(self) -> Cause:
        """The accepted command: what the scheduler decides about the job carries on its trace."""
        return Cause(self.command_event_id, self.correlation_id, self.traceparent)


# -- locks and time ---------------------------------------------------------------------------


async def lock(connection: asyncpg.Connection) -> None:
    await connection.execute(_LOCK)


async def try_lead(connection: asyncpg.Connection) -> bool:
    return bool(await connection.fetchval(_LEAD))


async def now(connection: asyncpg.Connection) -> datetime:
    moment: datetime = await connection.fetchval("select clock_timestamp()")
    return moment


# -- nodes ------------------------------------------------------------------------------------


async def nodes(connection: asyncpg.Connection) -> tuple[Node, ...]:
    rows = await connection.fetch("select * from nodes order by node_id")
    return tuple(
        Node(
            row["node_id"],
            row["pool"],
            row["device_type"],
            row["num_slots"],
            row["first_device"],
            is_schedulable=row["removed_at"] is None,
        )
        for row in rows
    )


async def put_node(connection: asyncpg.Connection, node: Node) -> None:
    await connection.execute(
        """insert into nodes (node_id, pool, device_type, num_slots, first_device)
        values ($1, $2, $3, $4, $5)
        on conflict (node_id) do update set pool = excluded.pool, removed_at = null,
            device_type = excluded.device_type, num_slots = excluded.num_slots,
            first_device = excluded.first_device""",
        node.node_id,
        node.pool,
        node.device_type,
        node.num_slots,
        node.first_device,
    )


async def remove_node(connection: asyncpg.Connection, node_id: str) -> None:
    await connection.execute(
        "update nodes set removed_at = clock_timestamp() where node_id = $1", node_id
    )


# -- jobs -------------------------------------------------------------------------------------


async def job(connection: asyncpg.Connection, job_id: str) -> JobRow | None:
    row = await connection.fetchrow("select * from jobs where job_id = $1", job_id)
    return None if row is None else _job(row)


async def jobs(connection: asyncpg.Connection, job_ids: Collection[str]) -> dict[str, JobRow]:
    rows = await connection.fetch("select * from jobs where job_id = any($1)", list(job_ids))
    return {row["job_id"]: _job(row) for row in rows}


async def insert_job(connection: asyncpg.Connection, job_id: str, event: Event[JobSubmit]) -> Any:
    """The time at which it was queued."""
    spec, trial = event.payload.spec, event.payload.trial
    return await connection.fetchval(
        """insert into jobs (job_id, tenant_id, request_id, command_event_id, correlation_id,
            traceparent, spec, trial, pool, device_type, devices, priority, state)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'queued')
        returning queued_at""",
        job_id,
        event.tenant_id,
        event.payload.request_id,
        event.event_id,
        event.correlation_id,
        event.traceparent,
        canonical_json(spec),
        None if trial is None else canonical_json(trial),
        spec.resources.pool,
        spec.resources.device_type,
        spec.resources.devices,
        spec.priority,
    )


async def queue(
    connection: asyncpg.Connection, capacities: Mapping[tuple[str, str], int]
) -> tuple[QueuedJob, ...]:
    """The heads of each pool's queue: of those that may start, and of those that may not yet.

    Apart, so that no number of jobs that block nobody hides one that could start. Of those further
    back come some of which something else was told last than holds now, or nothing yet.
    """
    rows = await connection.fetch(
        """with queued as (
            select *,
                (not_before_at is null or not_before_at <= clock_timestamp()) and exists (
                    select from unnest($2::text[], $3::text[], $4::int[])
                        as capacity (pool, device_type, slots)
                    where capacity.pool = jobs.pool and capacity.slots >= jobs.devices
                        and (jobs.device_type is null or jobs.device_type = capacity.device_type)
                ) as is_ready,
                row_number() over (
                    partition by pool order by priority desc, submission, job_id) as place
            from jobs where state = 'queued'
        ), heads as (
            select *, row_number() over (partition by pool, is_ready order by place) as number,
                waiting_reason is null or is_ready = (waiting_reason = any($5)) as is_news
            from queued
        )
        select * from heads where number <= $1
        union all
        (select * from heads where number > $1 and is_news order by pool, place limit $6)""",
        MAX_WAITING,
        [pool for pool, _ in capacities],
        [device_type for _, device_type in capacities],
        list(capacities.values()),
        [str(reason) for reason in SET_ASIDE],
        MAX_TOLD + 1,
    )
    return tuple(
        QueuedJob(
            row["job_id"],
            row["pool"],
            row["devices"],
            row["submission"],
            row["priority"],
            row["device_type"],
            row["not_before_at"],
            row["place"],
        )
        for row in rows
    )


async def next_backoff_end(connection: asyncpg.Connection, after: datetime) -> datetime | None:
    """When the next job may start that backs off at that time."""
    moment: datetime | None = await connection.fetchval(
        """select min(not_before_at) from jobs
        where state = 'queued' and not_before_at > $1""",
        after,
    )
    return moment


async def told_waiting(connection: asyncpg.Connection) -> Mapping[str, tuple[str, int]]:
    """What was last said of each waiting job."""
    rows = await connection.fetch(
        """select job_id, waiting_reason, waiting_position from jobs
        where state = 'queued' and waiting_reason is not null"""
    )
    return {row["job_id"]: (row["waiting_reason"], row["waiting_position"]) for row in rows}


async def set_waiting(connection: asyncpg.Connection, waiting: Waiting) -> None:
    await connection.execute(
        "update jobs set waiting_reason = $2, waiting_position = $3 where job_id = $1",
        waiting.job_id,
        str(waiting.reason),
        waiting.position,
    )


async def set_job_starting(connection: asyncpg.Connection, job_id: str, state: JobState) -> int:
    """The next attempt's number."""
    attempt: int = await connection.fetchval(
        """update jobs set state = $2, num_runs = num_runs + 1, not_before_at = null,
            waiting_reason = null, waiting_position = null where job_id = $1 returning num_runs""",
        job_id,
        str(state),
    )
    return attempt


async def set_job_state(connection: asyncpg.Connection, job_id: str, state: JobState) -> None:
    await connection.execute("update jobs set state = $2 where job_id = $1", job_id, str(state))


async def finish_job(connection: asyncpg.Connection, job_id: str, state: JobState) -> datetime:
    moment: datetime = await connection.fetchval(
        """update jobs set state = $2, finished_at = clock_timestamp() where job_id = $1
        returning finished_at""",
        job_id,
        str(state),
    )
    return moment


async def requeue_job(
    connection: asyncpg.Connection,
    job_id: str,
    num_failures: int,
    num_self_interruptions: int,
    backoff_seconds: float,
) -> datetime:
    """When the next run may start at the earliest."""
    moment: datetime = await connection.fetchval(
        """update jobs set state = 'queued', num_failures = $2, num_self_interruptions = $3,
            not_before_at = clock_timestamp() + make_interval(secs => $4)
        where job_id = $1 returning not_before_at""",
        job_id,
        num_failures,
        num_self_interruptions,
        backoff_seconds,
    )
    return moment


async def set_cancelled(connection: asyncpg.Connection, job_id: str, reason: str) -> None:
    await connection.execute(
        """update jobs set cancel_requested_at = clock_timestamp(), cancel_reason = $2
        where job_id = $1""",
        job_id,
        reason,
    )


async def jobs_to_tidy(connection: asyncpg.Connection, num_kept: int, limit: int) -> Sequence[str]:
    """Finished jobs whose pod directories may go: all but the last `num_kept`."""
    rows = await connection.fetch(
        """select job_id from jobs where finished_at is not null and pods_removed_at is null
        order by finished_at desc, job_id offset $1 limit $2""",
        num_kept,
        limit,
    )
    return [row["job_id"] for row in rows]


async def set_tidied(connection: asyncpg.Connection, job_id: str) -> None:
    await connection.execute(
        "update jobs set pods_removed_at = clock_timestamp() where job_id = $1", job_id
    )


def _job(row: Any) -> JobRow:
    return JobRow(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        request_id=row["request_id"],
        command_event_id=row["command_event_id"],
        correlation_id=row["correlation_id"],
        traceparent=row["traceparent"],
        # A newer version may have written more: what was accepted is not judged again.
        spec=JobSpec.model_validate_json(row["spec"], extra="ignore"),
        trial=(
            None
            if row["trial"] is None
            else TrialOf.model_validate_json(row["trial"], extra="ignore")
        ),
        state=JobState(row["state"]),
        num_runs=row["num_runs"],
        num_failures=row["num_failures"],
        num_self_interruptions=row["num_self_interruptions"],
        is_cancelled=row["cancel_requested_at"] is not None,
        cancel_reason=row["cancel_reason"] or "",
        queued_at=row["queued_at"],
    )
