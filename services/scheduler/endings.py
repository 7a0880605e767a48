"""Ends runs and jobs: what is stored and published when all pods of a run are proven gone, and
when a job without a run ends.

Called inside a transaction that holds the writer lock, as `transitions` is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.jobs import (
    JobCancelled,
    JobFailed,
    JobRetrying,
    JobState,
    JobStopped,
    JobSucceeded,
    Result,
)
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLost,
    RunState,
    RunStopped,
    RunSucceeded,
)
from drivetrain_schemas.text import storable
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import (
    instruments,
    measures,
    store,
    store_allocations,
    store_pods,
    store_runs,
    store_sightings,
    traces,
    transitions,
)
from services.scheduler.core.lifecycle import ForbiddenMove, move_job, move_run
from services.scheduler.core.outcome import Outcome, explain, what_happened
from services.scheduler.core.paid_time import PodTime, paid_ends_at
from services.scheduler.core.pods import Exit
from services.scheduler.core.retries import Next, after
from services.scheduler.core.wishes import Wish
from services.scheduler.projection import LiveRun
from services.scheduler.store import JobRow
from services.scheduler.store_allocations import AllocationRow
from services.scheduler.transitions import emit, identity, slot_refs

log = logs.get()


@dataclass(frozen=True, slots=True)
class Ending:
    """A run whose pods are all proven gone."""

    live: LiveRun
    outcome: Outcome
    result: Result | None = None


async def finish(tx: Tx, endings: Sequence[Ending]) -> None:
    """For each run, emit the outcome, the release, and the job's next state, in this order. Uses as
    many statements as for one run; only a retry takes one of its own."""
    if not endings:
        return
    connection = tx.connection
    runs = {
        ending.live.run.run_id: move_run(ending.live.run.state, ending.outcome.state)
        for ending in endings
    }
    ended_at = await store_runs.end_runs(connection, runs)
    await store_pods.delete_heartbeats(connection, list(runs))
    released = await store_allocations.release(connection, list(runs))
    pods = [pod.pod_id for ending in endings for pod in ending.live.pods]
    seen_at = await store_sightings.take(connection, pods)
    next_steps = [(ending, _after(ending)) for ending in endings]
    finished = {
        ending.live.job.job_id: move_job(ending.live.job.state, then)
        for ending, then in next_steps
        if isinstance(then, JobState)
    }
    finished_at = await store.finish_jobs(connection, finished) if finished else {}
    for ending, then in next_steps:
        live = ending.live
        await _emit_end(tx, ending, ended_at[live.run.run_id])
        await _emit_release(tx, ending, released[live.run.run_id], seen_at)
        measures.note_release(tx, released[live.run.run_id], str(ending.outcome.state))
        traces.note_end(tx, live.job, live.run, released[live.run.run_id], ending.outcome.state)
        if isinstance(then, JobState):
            await _emit_finished(tx, live.job, then, finished_at[live.job.job_id], ending)
        elif live.job.wish is Wish.PAUSE:
            await transitions.pause(
                tx, live.job, then.tries, ending.result.step if ending.result else None
            )
        else:
            await _retry(tx, ending, then)


def _after(ending: Ending) -> JobState | Next:
    """The job's final state, or its next try."""
    if ending.outcome.state is RunState.SUCCEEDED:
        return JobState.SUCCEEDED
    if ending.outcome.state is RunState.CANCELLED:
        return JobState.CANCELLED
    if ending.outcome.state is RunState.STOPPED:
        return JobState.STOPPED
    then = after(ending.outcome, ending.live.job.tries)
    return JobState.FAILED if then.backoff_seconds is None else then


async def end_without_run(tx: Tx, job: JobRow, state: JobState) -> None:
    """A job without slots is cancelled or stopped immediately."""
    state = move_job(job.state, state)
    finished_at = await store.finish_jobs(tx.connection, {job.job_id: state})
    result = await store_pods.last_result(tx.connection, job.job_id) if job.num_runs else None
    await _emit_finished(tx, job, state, finished_at[job.job_id], result=result)


async def _emit_end(tx: Tx, ending: Ending, ended_at: datetime) -> None:
    job, run, outcome = ending.live.job, ending.live.run, ending.outcome
    facts = {
        **identity(run),
        "ended_at": ended_at,
    }
    cause = outcome.cause
    event: Payload
    match outcome.state:
        case RunState.SUCCEEDED:
            event = RunSucceeded(**facts, result=ending.result)
        case RunState.CANCELLED:
            event = RunCancelled(**facts)
        case RunState.STOPPED:
            event = RunStopped(**facts)
        case RunState.INTERRUPTED:
            event = RunInterrupted(**facts, detail=explain(outcome) or None)
        case RunState.LOST:
            event = RunLost(**facts, detail=explain(outcome))
        case RunState.FAILED:
            assert cause is not None
            event = RunFailed(**facts, **_failure_facts(cause.exit), detail=explain(outcome))
        case _:
            raise ForbiddenMove(f"a run cannot end {outcome.state}")
    await emit(tx, job, event)
    instruments.RUNS.labels(str(outcome.state)).inc()
    log.info("run ended", run_id=run.run_id, outcome=str(outcome.state), detail=explain(outcome))


async def _emit_release(
    tx: Tx, ending: Ending, allocation: AllocationRow, seen_at: Mapping[str, datetime]
) -> None:
    live, run = ending.live, ending.live.run
    assert allocation.released_at is not None
    times = [
        PodTime(None if pod.exit is None else pod.exit.ended_at, seen_at.get(pod.pod_id))
        for pod in live.pods
        if not ending.outcome.is_refused
    ]
    event = AllocationReleased(
        **identity(run),
        allocation_id=allocation.allocation_id,
        tenant_id=live.job.tenant_id,
        pool=allocation.pool,
        device_type=allocation.device_type,
        slots=slot_refs(allocation),
        granted_at=allocation.granted_at,
        spot_nodes=allocation.spot_nodes,
        released_at=allocation.released_at,
        paid_ends_at=paid_ends_at(allocation.granted_at, allocation.released_at, times),
    )
    await emit(tx, live.job, event)


async def _retry(tx: Tx, ending: Ending, then: Next) -> None:
    job, attempt = ending.live.job, ending.live.run.attempt
    assert then.backoff_seconds is not None
    move_job(job.state, JobState.QUEUED)
    happened = storable(what_happened(ending.outcome, attempt))
    not_before_at = await store.requeue_job(
        tx.connection, job.job_id, then.tries, then.backoff_seconds, happened
    )
    event = JobRetrying(
        job_id=job.job_id,
        next_attempt=attempt + 1,
        backoff_seconds=then.backoff_seconds,
        not_before_at=not_before_at,
        retries_left=then.tries.num_left,
        detail=happened,
    )
    await emit(tx, job, event)


async def _emit_finished(
    tx: Tx,
    job: JobRow,
    state: JobState,
    finished_at: datetime,
    ending: Ending | None = None,
    result: Result | None = None,
) -> None:
    job_id, trial = job.job_id, job.trial
    event: Payload
    match state:
        case JobState.SUCCEEDED:
            event = JobSucceeded(
                job_id=job_id,
                attempts=job.num_runs,
                result=ending.result if ending else None,
                finished_at=finished_at,
                trial=trial,
            )
        case JobState.CANCELLED:
            event = JobCancelled(
                job_id=job_id, reason=job.wish_reason, finished_at=finished_at, trial=trial
            )
        case JobState.STOPPED:
            event = JobStopped(
                job_id=job_id,
                reason=job.wish_reason,
                result=ending.result if ending else result,
                finished_at=finished_at,
                trial=trial,
            )
        case JobState.FAILED:
            event = JobFailed(
                job_id=job_id,
                attempts=job.num_runs,
                detail=_explain_end(ending) if ending else "",
                finished_at=finished_at,
                trial=trial,
            )
        case _:
            raise ForbiddenMove(f"a job cannot end {state}")
    await emit(tx, job, event)
    instruments.JOBS.labels(str(state)).inc()
    log.info("job finished", job_id=job_id, state=str(state))


def _failure_facts(end: Exit | None) -> dict[str, Any]:
    """How the program ended; nothing of it is known where no `exit.json` was written."""
    if end is None:
        return {"last_log": ""}
    return {
        "exit_code": end.exit_code,
        "signal": end.signal,
        "rank": end.rank,
        "last_log": end.last_log,
    }


def _explain_end(ending: Ending) -> str:
    """Why the job failed, and why a retry that was left is not used."""
    why_not = after(ending.outcome, ending.live.job.tries).why_not
    return explain(ending.outcome) + (f" (not tried again: {why_not})" if why_not else "")
