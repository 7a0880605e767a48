"""Stores and publishes decisions: each function changes state and emits events.

Called inside a transaction that holds the writer lock, so a job's events and its rows agree and
come in one order: granted, starting, started, (suspected, heard,) the run's outcome, released, and
the job's next state. What ends runs and jobs is in `endings`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, SlotRef
from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import allocation_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import (
    Holder,
    JobPaused,
    JobResumed,
    JobState,
    JobWaiting,
    WaitingReason,
)
from drivetrain_schemas.runs import (
    RunHeard,
    RunStarted,
    RunStarting,
    RunState,
    RunSuspected,
    RunUnreachable,
    RunWaiting,
)
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import (
    instruments,
    measures,
    store,
    store_allocations,
    store_pods,
    store_runs,
    traces,
)
from services.scheduler.core.cycle import Grant
from services.scheduler.core.lifecycle import move_job, move_run
from services.scheduler.core.outcome import MAX_DETAIL
from services.scheduler.core.reasons import HolderOf, Waiting, without_other_tenants
from services.scheduler.core.retries import Tries
from services.scheduler.core.waits import Wait
from services.scheduler.projection import LiveRun
from services.scheduler.store import JobRow
from services.scheduler.store_allocations import AllocationRow
from services.scheduler.store_pods import PodRow
from services.scheduler.store_runs import RunRow

log = logs.get()

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
    times = await store_allocations.grant_times(
        connection, [granted.slots for _, granted in grants]
    )
    await measures.note_waits(
        tx,
        [job for job, _ in grants],
        dict(zip((job.job_id for job, _ in grants), times, strict=True)),
    )
    attempts = await store.set_jobs_starting(connection, starting)
    nodes = {slot.node_id for _, granted in grants for slot in granted.slots}
    spot = await store.spot_nodes(connection, nodes)
    planned = [
        _plan(job, granted, attempts[job.job_id], fence, port, granted_at, spot)
        for (job, granted), fence, port, granted_at in zip(
            grants, fences, ports, times, strict=False
        )
    ]
    runs = [(run, allocation.granted_at) for run, allocation in planned]
    await store_runs.insert_runs(connection, runs)
    await store_allocations.insert_allocations(connection, planned)
    pods = [gang(run, granted) for (run, _), (_, granted) in zip(planned, grants, strict=True)]
    await store_pods.insert_pods(connection, [pod for each in pods for pod in each])
    for (job, _), (run, allocation), each in zip(grants, planned, pods, strict=True):
        await _emit_granted(tx, job, run, allocation, len(each))


def _plan(
    job: JobRow,
    granted: Grant,
    attempt: int,
    fence: int,
    master_port: int,
    granted_at: datetime,
    spot: Set[str],
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
        spot_nodes=tuple(sorted({slot.node_id for slot in granted.slots} & spot)),
    )
    return run, allocation


async def _emit_granted(
    tx: Tx, job: JobRow, run: RunRow, allocation: AllocationRow, num_pods: int
) -> None:
    await emit(
        tx,
        job,
        AllocationGranted(
            **identity(run),
            allocation_id=allocation.allocation_id,
            tenant_id=job.tenant_id,
            pool=allocation.pool,
            device_type=allocation.device_type,
            slots=slot_refs(allocation),
            granted_at=allocation.granted_at,
            spot_nodes=allocation.spot_nodes,
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
    tx: Tx,
    jobs: Mapping[str, JobRow],
    job: JobRow,
    waiting: Waiting,
    position: int,
    found: Sequence[HolderOf],
) -> None:
    """Emit why the job waits."""
    detail, holders = detail_and_holders(jobs, job, waiting.detail, found)
    event = JobWaiting(
        job_id=job.job_id,
        reason=waiting.reason,
        detail=detail,
        queue_position=position,
        holders=holders,
        not_before_at=(job.not_before_at if waiting.reason is WaitingReason.BACKING_OFF else None),
    )
    await emit(tx, job, event)


def detail_and_holders(
    jobs: Mapping[str, JobRow], job: JobRow, detail: str, found: Sequence[HolderOf]
) -> tuple[str, tuple[Holder, ...]]:
    """Why a job waits, as its tenant sees it. `jobs`: all that wait or run."""

    def is_own(job_id: str) -> bool:
        other = jobs.get(job_id)
        return other is not None and other.tenant_id == job.tenant_id

    shown, held = without_other_tenants(detail, found, is_own)
    return shown, tuple(
        Holder(job_id=one.job_id, num_slots=one.num_slots, detail=one.detail or None)
        for one in held
    )


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
        await emit(tx, live.job, event)
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
        last_heard_at=await store_pods.last_heartbeat_at(tx.connection, run.run_id),
    )
    await emit(tx, job, event)
    instruments.SUSPECTS.inc()
    log.warning("run suspected", run_id=run.run_id)


async def recover(tx: Tx, job: JobRow, run: RunRow) -> None:
    """The heartbeats of a suspected run have resumed."""
    state = move_run(run.state, RunState.RUNNING)
    await store_runs.set_run_state(tx.connection, run.run_id, state)
    event = RunHeard(**identity(run))
    await emit(tx, job, event)
    log.info("run heard", run_id=run.run_id)


async def note_unreachable(tx: Tx, live: LiveRun, nodes: Mapping[str, str]) -> None:
    """These nodes of the run do not answer, for these reasons; none: all answer again."""
    run = live.run
    node_ids = tuple(sorted(nodes))
    await store_runs.set_unreachable(tx.connection, run.run_id, node_ids)
    detail = "; ".join(dict.fromkeys(nodes[node_id] for node_id in node_ids))[:MAX_DETAIL]
    event = RunUnreachable(**identity(run), node_ids=node_ids[:MAX_NODES], detail=detail)
    await emit(tx, live.job, event)
    log.warning("nodes of a run do not answer", run_id=run.run_id, nodes=node_ids[:20])


async def note_waiting(tx: Tx, live: LiveRun, wait: Wait | None) -> None:
    """Why the run does not run yet; None: what it waited for is over."""
    run = live.run
    await store_runs.set_waiting(tx.connection, run.run_id, wait)
    told = {} if wait is None else {"cause": wait.cause, "by": wait.by, "detail": wait.detail}
    await emit(tx, live.job, RunWaiting(**identity(run), **told))
    log.warning("run waits" if wait else "run waits no longer", run_id=run.run_id, **told)


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
    await emit(tx, job, event)
    instruments.PAUSES.inc()
    log.info("job paused", job_id=job.job_id, attempt=job.num_runs, step=step)


async def resume(tx: Tx, job: JobRow) -> None:
    """The job is queued again; where its run was still being paused, once that has ended."""
    queued_at = None
    if job.state is JobState.PAUSED:
        state = move_job(job.state, JobState.QUEUED)
        await store.set_job_states(tx.connection, {job.job_id: state})
        queued_at = await store.now(tx.connection)
    await emit(tx, job, JobResumed(job_id=job.job_id, queued_at=queued_at, trial=job.trial))
    log.info("job resumed", job_id=job.job_id, is_queued=queued_at is not None)


def identity(run: RunRow) -> dict[str, Any]:
    """The fields that identify a run in each of its events."""
    return {
        "job_id": run.job_id,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "fence": run.fence,
    }


def slot_refs(allocation: AllocationRow) -> tuple[SlotRef, ...]:
    return tuple(SlotRef(node_id=slot.node_id, slot=slot.number) for slot in allocation.slots)


async def emit(tx: Tx, job: JobRow, *payloads: Payload) -> None:
    for payload in payloads:
        cause = traces.cause(job, getattr(payload, "attempt", None))
        await tx.emit(payload, tenant_id=job.tenant_id, cause=cause)
