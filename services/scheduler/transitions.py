"""Stores and publishes decisions: each function changes state and emits events.

Called inside a transaction that holds the writer lock, so a job's events and its rows agree and
come in one order: granted, starting, started, (suspected, heard,) the run's outcome, released, and
the job's next state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased, SlotRef
from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import allocation_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import (
    Holder,
    JobCancelled,
    JobFailed,
    JobPaused,
    JobResumed,
    JobRetrying,
    JobState,
    JobStopped,
    JobSucceeded,
    JobWaiting,
    Result,
)
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunHeard,
    RunInterrupted,
    RunLost,
    RunStarted,
    RunStarting,
    RunState,
    RunStopped,
    RunSucceeded,
    RunSuspected,
    RunUnreachable,
)
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import instruments, measures, store, store_runs, store_sightings, traces
from services.scheduler.core.cycle import Grant
from services.scheduler.core.lifecycle import ForbiddenMove, move_job, move_run
from services.scheduler.core.outcome import Outcome
from services.scheduler.core.paid_time import PodTime, paid_ends_at
from services.scheduler.core.pods import Exit
from services.scheduler.core.reasons import HolderOf, Waiting
from services.scheduler.core.retries import Next, Tries, after
from services.scheduler.core.wishes import Wish
from services.scheduler.projection import LiveRun
from services.scheduler.store import JobRow
from services.scheduler.store_runs import AllocationRow, PodRow, RunRow

log = logs.get()

MAX_DETAIL = 1000
MAX_NODES = 1024  # in one event


async def grant(tx: Tx, grants: Sequence[tuple[JobRow, Grant]], ports: Sequence[int]) -> None:
    """The next run of each job holds its slots; its pods are intended. Uses as many statements as
    for one grant. Where ports run out, the last ones are not granted."""
    connection = tx.connection
    if len(ports) < len(grants):
        log.error("not granted: every rendezvous port is in use", num_jobs=len(grants) - len(ports))
        grants = grants[: len(ports)]
    if not grants:
        return
    fences = await store_runs.next_fences(connection, len(grants))
    starting = {job.job_id: move_job(job.state, JobState.STARTING) for job, _ in grants}
    times = await store_runs.grant_times(connection, [granted.slots for _, granted in grants])
    await measures.note_waits(
        tx,
        [job for job, _ in grants],
        dict(zip((job.job_id for job, _ in grants), times, strict=True)),
    )
    attempts = await store.set_jobs_starting(connection, starting)
    planned = [
        _plan(job, granted, attempts[job.job_id], fence, port, granted_at)
        for (job, granted), fence, port, granted_at in zip(
            grants, fences, ports, times, strict=False
        )
    ]
    await store_runs.insert_runs(connection, planned)
    await store_runs.insert_allocations(connection, planned)
    pods = [gang(run, granted) for (run, _), (_, granted) in zip(planned, grants, strict=True)]
    await store_runs.insert_pods(connection, [pod for each in pods for pod in each])
    for (job, _), (run, allocation), each in zip(grants, planned, pods, strict=True):
        await _emit_granted(tx, job, run, allocation, len(each))


def _plan(
    job: JobRow, granted: Grant, attempt: int, fence: int, master_port: int, granted_at: datetime
) -> tuple[RunRow, AllocationRow]:
    run = RunRow(
        run_id=run_id_for(job.job_id, attempt),
        job_id=job.job_id,
        attempt=attempt,
        fence=fence,
        state=RunState.STARTING,
        master_port=master_port,
        device_type=granted.device_type,
    )
    allocation = AllocationRow(
        allocation_id=allocation_id_for(job.job_id, attempt),
        pool=job.kind.pool,
        device_type=granted.device_type,
        slots=granted.slots,
        granted_at=granted_at,
    )
    return run, allocation


async def _emit_granted(
    tx: Tx, job: JobRow, run: RunRow, allocation: AllocationRow, num_pods: int
) -> None:
    await _emit(
        tx,
        job,
        AllocationGranted(
            **identity(run),
            allocation_id=allocation.allocation_id,
            tenant_id=job.tenant_id,
            pool=allocation.pool,
            device_type=allocation.device_type,
            slots=_slot_refs(allocation),
            granted_at=allocation.granted_at,
        ),
        RunStarting(
            **identity(run),
            allocation_id=allocation.allocation_id,
            num_pods=num_pods,
        ),
    )
    instruments.GRANTS.inc()
    log.info("allocation granted", run_id=run.run_id, fence=run.fence, num_pods=num_pods)


def gang(run: RunRow, granted: Grant) -> tuple[PodRow, ...]:
    """One pod per node; ranks are numbered consecutively over the pods."""
    slots_of: dict[str, int] = {}
    for slot in granted.slots:
        slots_of[slot.node_id] = slots_of.get(slot.node_id, 0) + 1
    pods: list[PodRow] = []
    first_rank = 0
    for index, (node_id, num_ranks) in enumerate(slots_of.items()):
        pod_id = pod_id_for(run.job_id, run.attempt, index)
        pods.append(PodRow(pod_id, run.run_id, index, node_id, first_rank, num_ranks))
        first_rank += num_ranks
    return tuple(pods)


async def wait(
    tx: Tx, job: JobRow, waiting: Waiting, position: int, holders: Sequence[HolderOf]
) -> None:
    """Emit why the job waits."""
    event = JobWaiting(
        job_id=job.job_id,
        reason=waiting.reason,
        detail=waiting.detail,
        queue_position=position,
        holders=tuple(map(holder, holders)),
    )
    await _emit(tx, job, event)


def holder(found: HolderOf) -> Holder:
    return Holder(job_id=found.job_id, num_slots=found.num_slots, detail=found.detail or None)


async def start(tx: Tx, live_runs: Sequence[LiveRun]) -> dict[str, LiveRun]:
    """Every pod of these gangs was seen alive. Returns the runs as they are now, by id."""
    if not live_runs:
        return {}
    runs = {live.run.run_id: move_run(live.run.state, RunState.RUNNING) for live in live_runs}
    jobs = {live.job.job_id: move_job(live.job.state, JobState.RUNNING) for live in live_runs}
    started_at = await store_runs.start_runs(tx.connection, runs)
    await measures.note_restarts(
        tx, [live.run.run_id for live in live_runs if live.run.attempt > 1]
    )
    await store.set_job_states(tx.connection, jobs)
    for live in live_runs:
        run = live.run
        event = RunStarted(
            **identity(run),
            started_at=started_at[run.run_id],
        )
        await _emit(tx, live.job, event)
        log.info("run started", run_id=run.run_id)
    return {
        live.run.run_id: replace(
            live,
            job=replace(live.job, state=jobs[live.job.job_id]),
            run=replace(live.run, state=runs[live.run.run_id]),
        )
        for live in live_runs
    }


async def stop(tx: Tx, run: RunRow, reason: str) -> None:
    """Request the stop of the run's live pods; the loop sends them the stop notice."""
    state = move_run(run.state, RunState.STOPPING)
    await store_runs.stop_run(tx.connection, run.run_id, state, reason)
    log.info("run stops", run_id=run.run_id, reason=reason)


async def suspect(tx: Tx, job: JobRow, run: RunRow) -> None:
    """The run's lease lapsed. This changes its state and nothing else."""
    state = move_run(run.state, RunState.SUSPECT)
    await store_runs.set_run_state(tx.connection, run.run_id, state)
    event = RunSuspected(
        **identity(run),
        last_heard_at=await store_runs.last_heartbeat_at(tx.connection, run.run_id),
    )
    await _emit(tx, job, event)
    instruments.SUSPECTS.inc()
    log.warning("run suspected", run_id=run.run_id)


async def recover(tx: Tx, job: JobRow, run: RunRow) -> None:
    """The heartbeats of a suspected run have resumed."""
    state = move_run(run.state, RunState.RUNNING)
    await store_runs.set_run_state(tx.connection, run.run_id, state)
    event = RunHeard(**identity(run))
    await _emit(tx, job, event)
    log.info("run heard", run_id=run.run_id)


async def note_unreachable(tx: Tx, live: LiveRun, nodes: Mapping[str, str]) -> None:
    """These nodes of the run do not answer, for these reasons; none: all answer again."""
    run = live.run
    node_ids = tuple(sorted(nodes))
    await store_runs.set_unreachable(tx.connection, run.run_id, node_ids)
    detail = "; ".join(dict.fromkeys(nodes[node_id] for node_id in node_ids))[:MAX_DETAIL]
    event = RunUnreachable(**identity(run), node_ids=node_ids[:MAX_NODES], detail=detail)
    await _emit(tx, live.job, event)
    log.warning("nodes of a run do not answer", run_id=run.run_id, nodes=node_ids[:20])


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
    await store_runs.delete_heartbeats(connection, list(runs))
    released = await store_runs.release(connection, list(runs))
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
        await _emit_release(tx, live, released[live.run.run_id], seen_at)
        measures.note_release(tx, released[live.run.run_id], str(ending.outcome.state))
        traces.note_end(tx, live.job, live.run, released[live.run.run_id], ending.outcome.state)
        if isinstance(then, JobState):
            await _emit_finished(tx, live.job, then, finished_at[live.job.job_id], ending)
        elif live.job.wish is Wish.PAUSE:
            await pause(tx, live.job, then.tries, ending.result.step if ending.result else None)
        else:
            await _retry(tx, live, then)


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
    result = await store_runs.last_result(tx.connection, job.job_id) if job.num_runs else None
    await _emit_finished(tx, job, state, finished_at[job.job_id], result=result)


async def pause(tx: Tx, job: JobRow, tries: Tries, step: int | None = None) -> None:
    """The job has no run, and gets none until it is resumed."""
    state = move_job(job.state, JobState.PAUSED)
    paused_at = await store.pause_job(tx.connection, job.job_id, state, tries)
    event = JobPaused(
        job_id=job.job_id,
        reason=job.wish_reason,
        attempt=job.num_runs,
        step=step,
        paused_at=paused_at,
        trial=job.trial,
    )
    await _emit(tx, job, event)
    instruments.PAUSES.inc()
    log.info("job paused", job_id=job.job_id, attempt=job.num_runs, step=step)


async def resume(tx: Tx, job: JobRow) -> None:
    """The job is queued again; where its run was still being paused, once that has ended."""
    queued_at = None
    if job.state is JobState.PAUSED:
        state = move_job(job.state, JobState.QUEUED)
        await store.set_job_states(tx.connection, {job.job_id: state})
        queued_at = await store.now(tx.connection)
    await _emit(tx, job, JobResumed(job_id=job.job_id, queued_at=queued_at, trial=job.trial))
    log.info("job resumed", job_id=job.job_id, is_queued=queued_at is not None)


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
    await _emit(tx, job, event)
    instruments.RUNS.labels(str(outcome.state)).inc()
    log.info("run ended", run_id=run.run_id, outcome=str(outcome.state), detail=explain(outcome))


async def _emit_release(
    tx: Tx, live: LiveRun, allocation: AllocationRow, seen_at: Mapping[str, datetime]
) -> None:
    run = live.run
    assert allocation.released_at is not None
    times = [
        PodTime(None if pod.exit is None else pod.exit.ended_at, seen_at.get(pod.pod_id))
        for pod in live.pods
    ]
    event = AllocationReleased(
        **identity(run),
        allocation_id=allocation.allocation_id,
        tenant_id=live.job.tenant_id,
        pool=allocation.pool,
        device_type=allocation.device_type,
        slots=_slot_refs(allocation),
        granted_at=allocation.granted_at,
        released_at=allocation.released_at,
        paid_ends_at=paid_ends_at(allocation.granted_at, allocation.released_at, times),
    )
    await _emit(tx, live.job, event)


async def _retry(tx: Tx, live: LiveRun, then: Next) -> None:
    job = live.job
    assert then.backoff_seconds is not None
    move_job(job.state, JobState.QUEUED)
    not_before_at = await store.requeue_job(
        tx.connection, job.job_id, then.tries, then.backoff_seconds
    )
    event = JobRetrying(
        job_id=job.job_id,
        next_attempt=live.run.attempt + 1,
        backoff_seconds=then.backoff_seconds,
        not_before_at=not_before_at,
        retries_left=then.tries.num_left,
    )
    await _emit(tx, job, event)


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
    await _emit(tx, job, event)
    instruments.JOBS.labels(str(state)).inc()
    log.info("job finished", job_id=job_id, state=str(state))


def explain(outcome: Outcome) -> str:
    """One sentence on why the run did not succeed."""
    cause = outcome.cause
    if cause is None:
        return ""
    if cause.reason is not None:
        return cause.reason.detail[:MAX_DETAIL]
    if cause.exit is None:
        was = "ended without writing exit.json" if cause.was_alive else "never started"
        return f"the shim of pod {cause.index} {was}; its remaining processes were killed"
    end = cause.exit
    if end.detail:
        return end.detail[:MAX_DETAIL]
    how = f"by signal {end.signal}" if end.signal else f"with code {end.exit_code}"
    return f"rank {end.rank} ended {how}" if end.rank is not None else f"a rank ended {how}"


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


def identity(run: RunRow) -> dict[str, Any]:
    """The fields that identify a run in each of its events."""
    return {
        "job_id": run.job_id,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "fence": run.fence,
    }


def _slot_refs(allocation: AllocationRow) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(node_id=slot.node_id, slot=slot.number) for slot in allocation.slots)


async def _emit(tx: Tx, job: JobRow, *payloads: Payload) -> None:
    for payload in payloads:
        cause = traces.cause(job, getattr(payload, "attempt", None))
        await tx.emit(payload, tenant_id=job.tenant_id, cause=cause)
