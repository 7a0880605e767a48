"""What the scheduler decided, stored and published: each function changes state and emits events.

Called inside a transaction that holds the writer lock, so a job's events and its rows agree and
come in one order: granted, starting, started, (suspected, heard,) the run's outcome, released, and
the job's next state.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased, SlotRef
from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import allocation_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import (
    Holder,
    JobCancelled,
    JobFailed,
    JobRetrying,
    JobState,
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
    RunSucceeded,
    RunSuspected,
)
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import instruments, store, store_runs, store_sightings
from services.scheduler.core.cycle import Grant
from services.scheduler.core.lifecycle import ForbiddenMove, move_job, move_run
from services.scheduler.core.outcome import Outcome
from services.scheduler.core.paid_time import PodTime, paid_ends_at
from services.scheduler.core.ports import FIRST_PORT, NUM_PORTS, first_candidate
from services.scheduler.core.reasons import HolderOf, Waiting
from services.scheduler.core.retries import after
from services.scheduler.projection import LiveRun
from services.scheduler.store import JobRow
from services.scheduler.store_runs import AllocationRow, PodRow, RunRow

log = logs.get()

MAX_DETAIL = 1000
NUM_PROBED_PORTS = 8


async def grant(
    tx: Tx, grants: Sequence[tuple[JobRow, Grant]], is_port_free: Callable[[int], bool]
) -> None:
    """The next run of each job holds its slots; its pods are intended. By as many statements as one
    grant takes. Where ports run out, the last ones are not granted."""
    connection = tx.connection
    fences = await store_runs.next_fences(connection, len(grants))
    ports = await _choose_ports(connection, fences, is_port_free)
    if len(ports) < len(grants):
        log.error("not granted: every rendezvous port is held", num_jobs=len(grants) - len(ports))
        grants = grants[: len(ports)]
    if not grants:
        return
    starting = {job.job_id: move_job(job.state, JobState.STARTING) for job, _ in grants}
    attempts = await store.set_jobs_starting(connection, starting)
    times = await store_runs.grant_times(connection, [granted.slots for _, granted in grants])
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
            job_id=run.job_id,
            run_id=run.run_id,
            attempt=run.attempt,
            fence=run.fence,
            allocation_id=allocation.allocation_id,
            tenant_id=job.tenant_id,
            pool=allocation.pool,
            device_type=allocation.device_type,
            slots=_slot_refs(allocation),
            granted_at=allocation.granted_at,
        ),
        RunStarting(
            job_id=run.job_id,
            run_id=run.run_id,
            attempt=run.attempt,
            fence=run.fence,
            allocation_id=allocation.allocation_id,
            num_pods=num_pods,
        ),
    )
    instruments.GRANTS.inc()
    log.info("allocation granted", run_id=run.run_id, fence=run.fence, num_pods=num_pods)


async def _choose_ports(
    connection: asyncpg.Connection, fences: Sequence[int], is_port_free: Callable[[int], bool]
) -> list[int]:
    """A port for each fence that no live run holds; preferably one at which nothing listens now."""
    limit = len(fences) + NUM_PROBED_PORTS
    free = await store_runs.free_ports(
        connection, FIRST_PORT, NUM_PORTS, first_candidate(fences[0]), limit
    )
    silent = {port for port in free if is_port_free(port)}
    return sorted(free, key=lambda port: port not in silent)[: len(fences)]


def gang(run: RunRow, granted: Grant) -> tuple[PodRow, ...]:
    """One pod per node, its ranks numbered on from those of the pods before it."""
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
        holders=tuple(
            Holder(job_id=holder.job_id, num_slots=holder.num_slots) for holder in holders
        ),
    )
    await _emit(tx, job, event)


async def start(tx: Tx, lives: Sequence[LiveRun]) -> dict[str, LiveRun]:
    """Every pod of these gangs was seen alive. Returns the runs as they are now, by id."""
    if not lives:
        return {}
    runs = {live.run.run_id: move_run(live.run.state, RunState.RUNNING) for live in lives}
    jobs = {live.job.job_id: move_job(live.job.state, JobState.RUNNING) for live in lives}
    started_at = await store_runs.start_runs(tx.connection, runs)
    await store.set_job_states(tx.connection, jobs)
    for live in lives:
        run = live.run
        event = RunStarted(
            job_id=run.job_id,
            run_id=run.run_id,
            attempt=run.attempt,
            fence=run.fence,
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
        for live in lives
    }


async def stop(tx: Tx, run: RunRow, reason: str) -> None:
    """The pods of the run that still live are to be stopped; the loop gives them notice."""
    state = move_run(run.state, RunState.STOPPING)
    await store_runs.stop_run(tx.connection, run.run_id, state, reason)
    log.info("run stops", run_id=run.run_id, reason=reason)


async def suspect(tx: Tx, job: JobRow, run: RunRow) -> None:
    """The run's lease lapsed. Its state says so; nothing else follows."""
    state = move_run(run.state, RunState.SUSPECT)
    await store_runs.set_run_state(tx.connection, run.run_id, state)
    event = RunSuspected(
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=run.fence,
        last_heard_at=await store_runs.last_heartbeat_at(tx.connection, run.run_id),
    )
    await _emit(tx, job, event)
    instruments.SUSPECTS.inc()
    log.warning("run suspected", run_id=run.run_id)


async def hear(tx: Tx, job: JobRow, run: RunRow) -> None:
    """Heartbeats of a suspected run arrive again."""
    state = move_run(run.state, RunState.RUNNING)
    await store_runs.set_run_state(tx.connection, run.run_id, state)
    event = RunHeard(job_id=run.job_id, run_id=run.run_id, attempt=run.attempt, fence=run.fence)
    await _emit(tx, job, event)
    log.info("run heard", run_id=run.run_id)


async def finish(tx: Tx, live: LiveRun, outcome: Outcome, result: Result | None) -> None:
    """All pods are proven gone: the outcome, the release, and the job's next state."""
    job, run = live.job, live.run
    await _end_run(tx, job, run, outcome, result)
    await store_runs.delete_heartbeats(tx.connection, run.run_id)
    await _release(tx, live)
    if outcome.state is RunState.SUCCEEDED:
        await _finish_job(tx, job, JobState.SUCCEEDED, result=result)
    elif outcome.state is RunState.CANCELLED:
        await _finish_job(tx, job, JobState.CANCELLED)
    else:
        await _retry_or_fail(tx, job, run, outcome)


async def cancel_queued(tx: Tx, job: JobRow) -> None:
    """A job that holds nothing is cancelled at once."""
    await _finish_job(tx, job, JobState.CANCELLED)


async def _end_run(
    tx: Tx, job: JobRow, run: RunRow, outcome: Outcome, result: Result | None
) -> None:
    state = move_run(run.state, outcome.state)
    ended_at = await store_runs.end_run(tx.connection, run.run_id, state)
    facts = {
        "job_id": run.job_id,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "fence": run.fence,
        "ended_at": ended_at,
    }
    cause = outcome.cause
    event: Payload
    match state:
        case RunState.SUCCEEDED:
            event = RunSucceeded(**facts, result=result)
        case RunState.CANCELLED:
            event = RunCancelled(**facts)
        case RunState.INTERRUPTED:
            event = RunInterrupted(**facts)
        case RunState.LOST:
            event = RunLost(**facts, detail=explain(outcome))
        case RunState.FAILED:
            assert cause is not None
            assert cause.exit is not None
            event = RunFailed(
                **facts,
                exit_code=cause.exit.exit_code,
                signal=cause.exit.signal,
                rank=cause.exit.rank,
                last_log=cause.exit.last_log,
            )
        case _:
            raise ForbiddenMove(f"a run does not end {state}")
    await _emit(tx, job, event)
    instruments.RUNS.labels(str(state)).inc()
    log.info("run ended", run_id=run.run_id, outcome=str(state), detail=explain(outcome))


async def _release(tx: Tx, live: LiveRun) -> None:
    run = live.run
    allocation = await store_runs.release(tx.connection, run.run_id)
    assert allocation.released_at is not None
    seen_at = await store_sightings.take(tx.connection, [pod.pod_id for pod in live.pods])
    times = [
        PodTime(None if pod.exit is None else pod.exit.ended_at, seen_at.get(pod.pod_id))
        for pod in live.pods
    ]
    event = AllocationReleased(
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=run.fence,
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


async def _retry_or_fail(tx: Tx, job: JobRow, run: RunRow, outcome: Outcome) -> None:
    then = after(outcome, job.tries)
    if then.backoff_seconds is None:
        await _finish_job(tx, job, JobState.FAILED, detail=explain(outcome))
        return
    move_job(job.state, JobState.QUEUED)
    not_before_at = await store.requeue_job(
        tx.connection,
        job.job_id,
        then.tries,
        then.backoff_seconds,
    )
    event = JobRetrying(
        job_id=job.job_id,
        next_attempt=run.attempt + 1,
        backoff_seconds=then.backoff_seconds,
        not_before_at=not_before_at,
        retries_left=then.tries.num_left,
    )
    await _emit(tx, job, event)


async def _finish_job(
    tx: Tx, job: JobRow, state: JobState, *, result: Result | None = None, detail: str = ""
) -> None:
    moved = move_job(job.state, state)
    finished_at = await store.finish_job(tx.connection, job.job_id, moved)
    job_id, trial = job.job_id, job.trial
    event: Payload
    match moved:
        case JobState.SUCCEEDED:
            event = JobSucceeded(
                job_id=job_id,
                attempts=job.num_runs,
                result=result,
                finished_at=finished_at,
                trial=trial,
            )
        case JobState.CANCELLED:
            event = JobCancelled(
                job_id=job_id, reason=job.cancel_reason, finished_at=finished_at, trial=trial
            )
        case JobState.FAILED:
            event = JobFailed(
                job_id=job_id,
                attempts=job.num_runs,
                detail=detail,
                finished_at=finished_at,
                trial=trial,
            )
        case _:
            raise ForbiddenMove(f"a job does not end {moved}")
    await _emit(tx, job, event)
    instruments.JOBS.labels(str(moved)).inc()
    log.info("job finished", job_id=job_id, state=str(moved))


def explain(outcome: Outcome) -> str:
    """Why the run did not succeed, in one sentence."""
    cause = outcome.cause
    if cause is None:
        return ""
    if cause.exit is None:
        was = "died without writing exit.json" if cause.was_alive else "never started"
        return f"the shim of pod {cause.index} {was}; what it left was killed and is gone"
    end = cause.exit
    if end.detail:
        return end.detail[:MAX_DETAIL]
    how = f"by signal {end.signal}" if end.signal else f"with code {end.exit_code}"
    return f"rank {end.rank} ended {how}" if end.rank is not None else f"a rank ended {how}"


def _slot_refs(allocation: AllocationRow) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(node_id=slot.node_id, slot=slot.number) for slot in allocation.slots)


async def _emit(tx: Tx, job: JobRow, *payloads: Payload) -> None:
    for payload in payloads:
        await tx.emit(payload, tenant_id=job.tenant_id, cause=job.cause)
