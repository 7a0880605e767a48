"""The scheduler's tables of jobs and nodes: one function per statement, typed, no rules.

A transaction that writes state first takes `lock`, the scheduler's only writer lock. No statement
that a decision needs reads a spec.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.base import canonical_json
from drivetrain_schemas.envelope import Cause, Event
from drivetrain_schemas.jobs import JobSpec, JobState, JobSubmit, TrialOf, WaitingReason
from services.scheduler.core.model import Kind, Node, QueuedJob
from services.scheduler.core.retries import Tries
from services.scheduler.core.wishes import Wish

# One key per schema, so that schedulers of different platforms in one Postgres do not conflict.
_LOCK = "select pg_advisory_xact_lock(hashtextextended(current_schema() || '/writer', 0))"
_LEAD = "select pg_try_advisory_lock(hashtextextended(current_schema() || '/leader', 0))"
_COLUMNS = """job_id, tenant_id, request_id, command_event_id, correlation_id, traceparent, trial,
    pool, device_type, devices, memory_bytes, priority, submission, state, num_runs, retry_limit,
    backoff_seconds, backoff_limit_seconds, num_failures, num_self_interruptions, last_failure,
    num_disruptions, not_before_at,
    waiting_reason, cancel_requested_at, cancel_reason, requested, requested_reason, saves_last,
    change, project, last_run"""

_CHANGED_PAGE = 500


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it is stored, without its spec. `change` grows with each change of it.

    `wish` is what was requested of it and has not happened yet; `last_run`: what became of it.
    """

    job_id: str
    tenant_id: str
    request_id: str
    cause: Cause
    trial: TrialOf | None
    kind: Kind
    submission: int
    state: JobState
    num_runs: int
    tries: Tries
    not_before_at: datetime | None
    announced: WaitingReason | None
    wish: Wish | None
    wish_reason: str
    saves_last: bool
    change: int
    project: str | None = None
    last_run: str = ""

    @property
    def queued(self) -> QueuedJob:
        return QueuedJob(
            self.job_id,
            self.kind,
            self.submission,
            self.not_before_at,
            self.announced,
            self.tenant_id,
            self.trial.study_id if self.trial else None,
            self.project,
            self.last_run,
        )


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """An accepted request: what a repeated one is compared with."""

    request_id: str
    command_event_id: str
    spec: JobSpec
    trial: TrialOf | None


@dataclass(frozen=True, slots=True)
class NewJob:
    """An accepted request that becomes a job; `event` is the command."""

    job_id: str
    event: Event[JobSubmit]


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
    rows = await connection.fetch('select * from nodes order by node_id collate "C"')
    return tuple(
        Node(
            row["node_id"],
            row["pool"],
            row["device_type"],
            row["num_slots"],
            row["first_device"],
            row["is_spot"],
            row["topology"],
            row["unschedulable"],
            is_removed=row["removed_at"] is not None,
        )
        for row in rows
    )


async def spot_nodes(connection: asyncpg.Connection, node_ids: Collection[str]) -> frozenset[str]:
    """Those of these nodes that are spot capacity."""
    rows = await connection.fetch(
        "select node_id from nodes where is_spot and node_id = any($1)", list(node_ids)
    )
    return frozenset(row["node_id"] for row in rows)


async def capacities(connection: asyncpg.Connection) -> Mapping[str, Mapping[str, int]]:
    """By pool: its slots of each device type."""
    rows = await connection.fetch(
        """select pool, device_type, sum(num_slots) as num_slots from nodes
        where removed_at is null group by pool, device_type"""
    )
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["pool"], {})[row["device_type"]] = row["num_slots"]
    return found


async def put_node(connection: asyncpg.Connection, node: Node) -> None:
    await connection.execute(
        """insert into nodes (node_id, pool, device_type, num_slots, first_device, is_spot,
            topology, unschedulable)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (node_id) do update set pool = excluded.pool, removed_at = null,
            device_type = excluded.device_type, num_slots = excluded.num_slots,
            first_device = excluded.first_device, is_spot = excluded.is_spot,
            topology = excluded.topology, unschedulable = excluded.unschedulable""",
        node.node_id,
        node.pool,
        node.device_type,
        node.num_slots,
        node.first_device,
        node.is_spot,
        node.topology,
        node.unschedulable,
    )


async def remove_node(connection: asyncpg.Connection, node_id: str) -> None:
    await connection.execute(
        "update nodes set removed_at = clock_timestamp() where node_id = $1", node_id
    )


# -- jobs -------------------------------------------------------------------------------------


async def job(connection: asyncpg.Connection, job_id: str) -> JobRow | None:
    row = await connection.fetchrow(f"select {_COLUMNS} from jobs where job_id = $1", job_id)
    return None if row is None else _job(row)


async def jobs(connection: asyncpg.Connection, job_ids: Collection[str]) -> list[JobRow]:
    rows = await connection.fetch(
        f"select {_COLUMNS} from jobs where job_id = any($1)", list(job_ids)
    )
    return [_job(row) for row in rows]


async def live_jobs(connection: asyncpg.Connection) -> list[JobRow]:
    """Every job that waits or has a live run."""
    rows = await connection.fetch(
        f"""select {_COLUMNS} from jobs where state = 'queued'
        union all
        select {_COLUMNS} from jobs where job_id in (
            select job_id from runs where ended_at is null)"""
    )
    return [_job(row) for row in rows]


async def last_change(connection: asyncpg.Connection) -> int:
    number: int = await connection.fetchval("select coalesce(max(change), 0) from jobs")
    return number


async def live_changes(connection: asyncpg.Connection) -> Mapping[str, int]:
    """The change number of every job that waits or has a live run."""
    rows = await connection.fetch(
        """select job_id, change from jobs where state = 'queued'
        union all
        select job_id, change from jobs where job_id in (
            select job_id from runs where ended_at is null)"""
    )
    return {row["job_id"]: row["change"] for row in rows}


async def jobs_changed(connection: asyncpg.Connection, after: int) -> list[JobRow]:
    """Those whose change number is higher."""
    # By pages: without a limit, a planner with old statistics expects a third of the table.
    jobs: list[JobRow] = []
    while True:
        rows = await connection.fetch(
            f"select {_COLUMNS} from jobs where change > $1 order by change limit $2",
            jobs[-1].change if jobs else after,
            _CHANGED_PAGE,
        )
        jobs += [_job(row) for row in rows]
        if len(rows) < _CHANGED_PAGE:
            return jobs


async def specs(connection: asyncpg.Connection, job_ids: Collection[str]) -> dict[str, JobSpec]:
    """For the launch of pods."""
    rows = await connection.fetch(
        "select job_id, spec from jobs where job_id = any($1)", list(job_ids)
    )
    return {row["job_id"]: _spec(row["spec"]) for row in rows}


async def known_requests(
    connection: asyncpg.Connection, job_ids: Collection[str]
) -> dict[str, KnownRequest]:
    """Those of these jobs that exist, by id."""
    rows = await connection.fetch(
        "select job_id, request_id, command_event_id, spec, trial from jobs where job_id = any($1)",
        list(job_ids),
    )
    return {
        row["job_id"]: KnownRequest(
            row["request_id"], row["command_event_id"], _spec(row["spec"]), _trial(row["trial"])
        )
        for row in rows
    }


async def insert_jobs(
    connection: asyncpg.Connection, jobs: Sequence[NewJob]
) -> Mapping[str, datetime]:
    """Queue these jobs in this order. The time at which each was queued."""
    requests = [(job, job.event.payload, job.event.payload.spec) for job in jobs]
    rows = await connection.fetch(
        """insert into jobs (job_id, tenant_id, request_id, command_event_id, correlation_id,
            traceparent, spec, trial, pool, device_type, devices, priority, retry_limit,
            backoff_seconds, backoff_limit_seconds, project, memory_bytes, state)
        select job_id, tenant_id, request_id, event_id, correlation_id, traceparent, spec, trial,
            pool, device_type, devices, priority, retry_limit, backoff_seconds,
            backoff_limit_seconds, project, memory_bytes, 'queued'
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::int[], $12::int[], $13::int[],
            $14::float[], $15::float[], $16::text[], $17::bigint[]) with ordinality
            as new (job_id, tenant_id, request_id, event_id, correlation_id, traceparent, spec,
                trial, pool, device_type, devices, priority, retry_limit, backoff_seconds,
                backoff_limit_seconds, project, memory_bytes, place)
        order by place
        returning job_id, queued_at""",
        [job.job_id for job in jobs],
        [job.event.tenant_id for job in jobs],
        [payload.request_id for _, payload, _ in requests],
        [job.event.event_id for job in jobs],
        [job.event.correlation_id for job in jobs],
        [job.event.traceparent for job in jobs],
        [canonical_json(spec) for _, _, spec in requests],
        [payload.trial and canonical_json(payload.trial) for _, payload, _ in requests],
        [spec.resources.pool for _, _, spec in requests],
        [spec.resources.device_type for _, _, spec in requests],
        [spec.resources.devices for _, _, spec in requests],
        [spec.priority for _, _, spec in requests],
        [spec.retries.limit for _, _, spec in requests],
        [float(spec.retries.backoff_seconds) for _, _, spec in requests],
        [float(spec.retries.backoff_limit_seconds) for _, _, spec in requests],
        [spec.project for _, _, spec in requests],
        [spec.resources.memory_bytes for _, _, spec in requests],
    )
    return {row["job_id"]: row["queued_at"] for row in rows}


async def set_announced(
    connection: asyncpg.Connection, reasons: Mapping[str, WaitingReason]
) -> None:
    """By job id: the reason that is announced now."""
    await connection.execute(
        """update jobs set waiting_reason = announced.reason
        from unnest($1::text[], $2::text[]) as announced (job_id, reason)
        where jobs.job_id = announced.job_id""",
        list(reasons),
        [str(reason) for reason in reasons.values()],
    )


async def ready_since(
    connection: asyncpg.Connection, job_ids: Collection[str]
) -> Mapping[str, datetime]:
    """By job id: since when each of these queued jobs could have started."""
    rows = await connection.fetch(
        """select job_id, greatest(queued_at, not_before_at) as ready_at from jobs
        where job_id = any($1)""",
        list(job_ids),
    )
    return {row["job_id"]: row["ready_at"] for row in rows}


async def set_jobs_starting(
    connection: asyncpg.Connection, states: Mapping[str, JobState]
) -> Mapping[str, int]:
    """By job id: the next attempt's number."""
    rows = await connection.fetch(
        """update jobs set state = starting.state, num_runs = num_runs + 1, not_before_at = null,
            waiting_reason = null
        from unnest($1::text[], $2::text[]) as starting (job_id, state)
        where jobs.job_id = starting.job_id returning jobs.job_id, num_runs""",
        list(states),
        [str(state) for state in states.values()],
    )
    return {row["job_id"]: row["num_runs"] for row in rows}


async def set_job_states(connection: asyncpg.Connection, states: Mapping[str, JobState]) -> None:
    await connection.execute(
        """update jobs set state = new.state
        from unnest($1::text[], $2::text[]) as new (job_id, state)
        where jobs.job_id = new.job_id""",
        list(states),
        [str(state) for state in states.values()],
    )


async def finish_jobs(
    connection: asyncpg.Connection, states: Mapping[str, JobState]
) -> Mapping[str, datetime]:
    """By job id: when it finished."""
    rows = await connection.fetch(
        """update jobs set state = new.state, finished_at = clock_timestamp(),
            pods_removed_at = case when num_runs = 0 then clock_timestamp() end
        from unnest($1::text[], $2::text[]) as new (job_id, state)
        where jobs.job_id = new.job_id returning jobs.job_id, finished_at""",
        list(states),
        [str(state) for state in states.values()],
    )
    return {row["job_id"]: row["finished_at"] for row in rows}


async def requeue_job(
    connection: asyncpg.Connection,
    job_id: str,
    tries: Tries,
    backoff_seconds: float,
    last_run: str,
) -> datetime:
    """When the next run may start at the earliest."""
    moment: datetime = await connection.fetchval(
        """update jobs set state = 'queued', num_failures = $2, num_self_interruptions = $3,
            last_failure = $4, num_disruptions = $5,
            not_before_at = clock_timestamp() + make_interval(secs => $6), last_run = $7
        where job_id = $1 returning not_before_at""",
        job_id,
        tries.num_failures,
        tries.num_self_interruptions,
        tries.last_failure,
        tries.num_disruptions,
        backoff_seconds,
        last_run,
    )
    return moment


async def set_cancelled(connection: asyncpg.Connection, job_id: str, reason: str) -> None:
    await connection.execute(
        """update jobs set cancel_requested_at = clock_timestamp(), cancel_reason = $2
        where job_id = $1""",
        job_id,
        reason,
    )


async def set_requested(
    connection: asyncpg.Connection, job_id: str, wish: Wish | None, reason: str, saves_last: bool
) -> None:
    """A stop or a pause; None: a pause is withdrawn."""
    await connection.execute(
        """update jobs set requested = $2, requested_reason = $3, saves_last = $4
        where job_id = $1""",
        job_id,
        None if wish is None else str(wish),
        reason,
        saves_last,
    )


async def pause_job(
    connection: asyncpg.Connection, job_id: str, state: JobState, tries: Tries
) -> datetime:
    """When it was paused. Its place in the queue stays that of its submission."""
    moment: datetime = await connection.fetchval(
        """update jobs set state = $2, requested = null, waiting_reason = null, num_failures = $3,
            num_self_interruptions = $4, last_failure = $5, num_disruptions = $6
        where job_id = $1 returning clock_timestamp()""",
        job_id,
        str(state),
        tries.num_failures,
        tries.num_self_interruptions,
        tries.last_failure,
        tries.num_disruptions,
    )
    return moment


async def jobs_to_tidy(connection: asyncpg.Connection, num_kept: int, limit: int) -> Sequence[str]:
    """Finished jobs whose pod directories may be removed: all but the last `num_kept`."""
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
    reason = row["waiting_reason"]
    return JobRow(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        request_id=row["request_id"],
        cause=Cause(row["command_event_id"], row["correlation_id"], row["traceparent"]),
        trial=_trial(row["trial"]),
        kind=Kind(
            row["pool"], row["device_type"], row["devices"], row["priority"], row["memory_bytes"]
        ),
        submission=row["submission"],
        state=JobState(row["state"]),
        num_runs=row["num_runs"],
        tries=Tries(
            row["retry_limit"],
            row["backoff_seconds"],
            row["backoff_limit_seconds"],
            row["num_failures"],
            row["num_self_interruptions"],
            row["last_failure"],
            row["num_disruptions"],
        ),
        not_before_at=row["not_before_at"],
        announced=None if reason is None else WaitingReason(reason),
        wish=_wish(row),
        wish_reason=row["cancel_reason" if _wish(row) is Wish.CANCEL else "requested_reason"] or "",
        saves_last=row["saves_last"],
        change=row["change"],
        project=row["project"],
        last_run=row["last_run"],
    )


def _wish(row: Any) -> Wish | None:
    if row["cancel_requested_at"] is not None:
        return Wish.CANCEL
    return None if row["requested"] is None else Wish(row["requested"])


# A newer version may have written more fields: an accepted spec is not validated again.


def _spec(text: str) -> JobSpec:
    return JobSpec.model_validate_json(text, extra="ignore")


def _trial(text: str | None) -> TrialOf | None:
    return None if text is None else TrialOf.model_validate_json(text, extra="ignore")
