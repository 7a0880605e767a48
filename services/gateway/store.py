"""Writes of the read model about jobs, runs, slots and the timeline: one function per statement.

Moves of state carry the event's `seq` and change nothing when a newer event was applied before
(a parked event that is replayed comes late). Text that comes from outside is made storable here.
"""

from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased, SlotRef
from drivetrain_schemas.base import Payload, canonical_json
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobQueued, JobSubmit, JobWaiting
from drivetrain_schemas.runs import RunStarting
from services.gateway.core.progress import Progress

Connection = asyncpg.Connection


async def next_cursor(connection: Connection) -> int:
    """Draw the next cursor; its row stays locked until the transaction ends."""
    cursor: int = await connection.fetchval(
        """
        insert into stream (last_cursor) values (1)
        on conflict (singleton) do update set last_cursor = stream.last_cursor + 1
        returning last_cursor
        """
    )
    return cursor


async def insert_timeline(connection: Connection, cursor: int, event: Event[Payload]) -> None:
    payload = event.payload
    await connection.execute(
        """
        insert into timeline (cursor, source, event_id, type, tenant_id, job_id, study_id, node_id,
            occurred_at, seq, payload)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        on conflict (source, event_id) do nothing
        """,
        cursor,
        event.source,
        event.event_id,
        event.type,
        event.tenant_id,
        getattr(payload, "job_id", None),
        getattr(payload, "study_id", None),
        getattr(payload, "node_id", None),
        event.occurred_at,
        event.seq or 0,
        payload.model_dump(mode="json", exclude_none=True),
    )


async def stub_submitted_job(connection: Connection, event: Event[JobSubmit], job_id: str) -> None:
    """A request was made; what the scheduler says of the job counts for more."""
    submit = event.payload
    trial = submit.trial
    await connection.execute(
        """
        insert into jobs (job_id, tenant_id, request_id, name, spec, submitted_at, study_id,
            trial_number)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (job_id) do update set
            submitted_at = least(jobs.submitted_at, excluded.submitted_at),
            request_id = coalesce(jobs.request_id, excluded.request_id),
            name = coalesce(jobs.name, excluded.name),
            spec = coalesce(jobs.spec, excluded.spec),
            study_id = coalesce(jobs.study_id, excluded.study_id),
            trial_number = coalesce(jobs.trial_number, excluded.trial_number)
        """,
        job_id,
        event.tenant_id,
        submit.request_id,
        submit.spec.name,
        submit.spec.model_dump(mode="json"),
        event.occurred_at,
        trial.study_id if trial else None,
        trial.number if trial else None,
    )


async def stub_job(
    connection: Connection, job_id: str, tenant_id: str, submitted_at: datetime | None = None
) -> None:
    await connection.execute(
        """
        insert into jobs (job_id, tenant_id, submitted_at) values ($1, $2, $3)
        on conflict do nothing
        """,
        job_id,
        tenant_id,
        submitted_at,
    )


async def upsert_queued_job(connection: Connection, event: Event[JobQueued]) -> None:
    queued = event.payload
    trial = queued.trial
    await connection.execute(
        """
        insert into jobs (job_id, tenant_id, request_id, name, spec, state, state_seq, state_at,
            queued_at, study_id, trial_number, accepted_spec)
        values ($1, $2, $3, $4, $5, 'queued', $6, $7, $7, $8, $9, $10)
        on conflict (job_id) do update set
            tenant_id = excluded.tenant_id, request_id = excluded.request_id, name = excluded.name,
            spec = excluded.spec, queued_at = excluded.queued_at, study_id = excluded.study_id,
            trial_number = excluded.trial_number, accepted_spec = excluded.accepted_spec,
            state = case when jobs.state_seq < $6 then 'queued' else jobs.state end,
            state_at = case when jobs.state_seq < $6 then $7 else jobs.state_at end,
            state_seq = greatest(jobs.state_seq, $6)
        """,
        queued.job_id,
        event.tenant_id,
        queued.request_id,
        queued.spec.name,
        queued.spec.model_dump(mode="json"),
        event.seq or 0,
        queued.queued_at,
        trial.study_id if trial else None,
        trial.number if trial else None,
        canonical_json(queued.spec),
    )


async def set_job_state(
    connection: Connection, job_id: str, seq: int, state: str, at: datetime
) -> bool:
    """Move the job; False when a newer event has moved it already."""
    moved = await connection.fetchval(
        """
        update jobs set state = $3, state_seq = $2, state_at = $4, waiting_reason = null,
            waiting_detail = null, queue_position = null, holders = null, not_before_at = null
        where job_id = $1 and state_seq < $2
        returning true
        """,
        job_id,
        seq,
        state,
        at,
    )
    return bool(moved)


async def set_job_waiting(
    connection: Connection, waiting: JobWaiting, seq: int, at: datetime
) -> None:
    await connection.execute(
        """
        update jobs set state = 'queued', state_seq = $2, state_at = $3, waiting_reason = $4,
            waiting_detail = $5, queue_position = $6, holders = $7
        where job_id = $1 and state_seq < $2
        """,
        waiting.job_id,
        seq,
        at,
        waiting.reason.value,
        waiting.detail,
        waiting.queue_position,
        [holder.model_dump(mode="json") for holder in waiting.holders],
    )


async def set_job_retry(
    connection: Connection, job_id: str, detail: str, not_before_at: datetime
) -> None:
    await connection.execute(
        """
        update jobs set waiting_reason = 'backing_off', waiting_detail = $2, not_before_at = $3
        where job_id = $1
        """,
        job_id,
        detail,
        not_before_at,
    )


async def set_job_cancelling(connection: Connection, job_id: str) -> None:
    await connection.execute(
        "update jobs set is_cancelling = true where job_id = $1 and finished_at is null", job_id
    )


async def set_job_run(connection: Connection, job_id: str, run_id: str, attempt: int) -> None:
    await connection.execute(
        """
        update jobs set run_id = $2, attempt = $3
        where job_id = $1 and coalesce(attempt, 0) <= $3
        """,
        job_id,
        run_id,
        attempt,
    )


async def set_job_started(connection: Connection, job_id: str, at: datetime) -> None:
    """Remember when the first run of the job ran."""
    await connection.execute(
        "update jobs set started_at = least(started_at, $2) where job_id = $1", job_id, at
    )


async def set_job_finished(
    connection: Connection, job_id: str, at: datetime, detail: str, result: Any
) -> None:
    await connection.execute(
        """
        update jobs set finished_at = $2, detail = $3, result = $4, is_cancelling = false
        where job_id = $1
        """,
        job_id,
        at,
        detail,
        result,
    )


async def upsert_progress(connection: Connection, word: Progress) -> None:
    await connection.execute(
        """
        insert into job_progress (job_id, run_id, attempt, fence, phase, step, max_steps, epoch,
            num_dropped_samples, num_dropped_log_bytes, first_step, first_step_at, step_at,
            heard_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        on conflict (job_id) do update set
            run_id = excluded.run_id, attempt = excluded.attempt, fence = excluded.fence,
            phase = excluded.phase, step = excluded.step, max_steps = excluded.max_steps,
            epoch = excluded.epoch, num_dropped_samples = excluded.num_dropped_samples,
            num_dropped_log_bytes = excluded.num_dropped_log_bytes,
            first_step = excluded.first_step, first_step_at = excluded.first_step_at,
            step_at = excluded.step_at, heard_at = excluded.heard_at
        """,
        word.job_id,
        word.run_id,
        word.attempt,
        word.fence,
        word.phase,
        word.step,
        word.max_steps,
        word.epoch,
        word.num_dropped_samples,
        word.num_dropped_log_bytes,
        word.first_step,
        word.first_step_at,
        word.step_at,
        word.heard_at,
    )


async def lock_progress(connection: Connection, job_id: str) -> Progress | None:
    """The job's progress so far, locked until the transaction ends."""
    row = await connection.fetchrow(
        """
        select job_id, run_id, attempt, fence, phase, step, max_steps, epoch, num_dropped_samples,
            num_dropped_log_bytes, first_step, first_step_at, step_at, heard_at
        from job_progress where job_id = $1 for update
        """,
        job_id,
    )
    return None if row is None else Progress(**dict(row))


async def insert_run(connection: Connection, starting: RunStarting, seq: int, at: datetime) -> None:
    await connection.execute(
        """
        insert into runs (run_id, job_id, attempt, fence, state, state_seq, allocation_id, num_pods,
            starting_at)
        values ($1, $2, $3, $4, 'starting', $5, $6, $7, $8)
        on conflict (run_id) do update set allocation_id = excluded.allocation_id,
            num_pods = excluded.num_pods, starting_at = excluded.starting_at
        """,
        starting.run_id,
        starting.job_id,
        starting.attempt,
        starting.fence,
        seq,
        starting.allocation_id,
        starting.num_pods,
        at,
    )


async def set_run_state(connection: Connection, run: Any, seq: int, state: str) -> bool:
    """Move the run (an event of it); False when a newer event has moved it already."""
    moved = await connection.fetchval(
        """
        insert into runs (run_id, job_id, attempt, fence, state, state_seq)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (run_id) do update set state = excluded.state, state_seq = excluded.state_seq
        where runs.state_seq < excluded.state_seq
        returning true
        """,
        run.run_id,
        run.job_id,
        run.attempt,
        run.fence,
        state,
        seq,
    )
    return bool(moved)


async def set_run_started(connection: Connection, run_id: str, at: datetime) -> None:
    await connection.execute("update runs set started_at = $2 where run_id = $1", run_id, at)


async def set_run_ended(connection: Connection, run_id: str, at: datetime, detail: str) -> None:
    await connection.execute(
        "update runs set ended_at = $2, detail = $3 where run_id = $1",
        run_id,
        at,
        detail,
    )


async def set_run_failure(connection: Connection, failed: Any) -> None:
    await connection.execute(
        """
        update runs set exit_code = $2, signal = $3, rank = $4, last_log = $5 where run_id = $1
        """,
        failed.run_id,
        failed.exit_code,
        failed.signal,
        failed.rank,
        failed.last_log,
    )


async def upsert_allocation(
    connection: Connection,
    allocation: AllocationGranted | AllocationReleased,
    released_at: datetime | None,
) -> None:
    """A release is final, whichever of the two comes first."""
    await connection.execute(
        """
        insert into allocations (allocation_id, tenant_id, job_id, run_id, attempt, pool,
            device_type, num_slots, granted_at, released_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict (allocation_id) do update
            set released_at = coalesce(allocations.released_at, excluded.released_at)
        """,
        allocation.allocation_id,
        allocation.tenant_id,
        allocation.job_id,
        allocation.run_id,
        allocation.attempt,
        allocation.pool,
        allocation.device_type,
        len(allocation.slots),
        allocation.granted_at,
        released_at,
    )


async def insert_slots(
    connection: Connection, allocation_id: str, slots: tuple[SlotRef, ...]
) -> None:
    await connection.execute(
        """
        insert into allocation_slots (allocation_id, node_id, slot)
        select $1, node_id, slot from unnest($2::text[], $3::integer[]) as held (node_id, slot)
        on conflict do nothing
        """,
        allocation_id,
        [slot.node_id for slot in slots],
        [slot.slot for slot in slots],
    )
