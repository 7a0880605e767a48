"""What the metrics service does with heartbeats, warnings and the events of runs.

Heartbeats update a run's pace; alerts about a stall and about dropped samples follow from it. They
are an upsert of one row, so a repeated one needs no inbox. The events of runs say which runs are
RUNNING; only those raise alerts, and an alert about a stall is cleared when the run ends. A warning
of a pod becomes one event, however often it is sent.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from drivetrain_schemas.allocations import AllocationGranted
from drivetrain_schemas.base import Payload
from drivetrain_schemas.descriptions import PodDescribed
from drivetrain_schemas.envelope import Event, InvalidEvent, header
from drivetrain_schemas.jobs import JobCancelled, JobFailed, JobQueued, JobStopped, JobSucceeded
from drivetrain_schemas.metrics import AlertKind, RunWarned
from drivetrain_schemas.reports import ALERT, PodHeartbeat, PodWarned
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
)
from services.metrics import alerts, descriptions, media_retention, ranks, rungs, store
from services.metrics.core.alerts import Heartbeat, advance, is_stalled, stall_limit
from services.metrics.core.clock import Point
from services.metrics.core.clock import advance as advance_clock
from services.metrics.instruments import WARNINGS
from services.metrics.series import times_store
from services.metrics.silences import commands as silences
from services.metrics.store_watched import watched_of
from services.runtime import logs
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.processing import HandlerTable
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Tx

log = logs.get()

_TAKEN = (None, PodHeartbeat.kind.type, PodWarned.kind.type, PodDescribed.kind.type)
RunEvent = (
    RunStarting
    | RunStarted
    | RunSuspected
    | RunHeard
    | RunSucceeded
    | RunFailed
    | RunLost
    | RunCancelled
    | RunInterrupted
    | RunStopped
)
_STATES: dict[type[Payload], RunState] = {
    RunStarting: RunState.STARTING,
    RunStarted: RunState.RUNNING,
    RunSuspected: RunState.SUSPECT,
    RunHeard: RunState.RUNNING,
    RunSucceeded: RunState.SUCCEEDED,
    RunFailed: RunState.FAILED,
    RunLost: RunState.LOST,
    RunCancelled: RunState.CANCELLED,
    RunInterrupted: RunState.INTERRUPTED,
    RunStopped: RunState.STOPPED,
}


async def on_run_moved(tx: Tx, event: Event[RunEvent]) -> None:
    """Store the state of a run. The state of an ended run never changes."""
    payload = event.payload
    run = await store.lock_run(
        tx.connection, payload.run_id, payload.job_id, event.tenant_id, payload.attempt
    )
    if run.has_ended:
        return
    state = _STATES[type(payload)]
    await store.set_state(tx.connection, run.run_id, state, event.tenant_id)
    if state.is_final and run.clock is not None:
        await times_store.save(tx.connection, run.run_id, run.clock, [run.clock.newest])
    if state.is_final:
        await alerts.clear_all(tx, run, f"the run has ended: {state}", event)
    if state.is_final or state is RunState.STARTING:
        await rungs.run_moved(tx, run, is_live=not state.is_final)


async def on_job_queued(tx: Tx, event: Event[JobQueued]) -> None:
    await silences.on_job_queued(tx, event)
    await rungs.on_job_queued(tx, event)


async def on_job_finished(tx: Tx, event: Event[rungs.JobFinished]) -> None:
    await silences.on_job_finished(tx, event)
    await rungs.on_job_finished(tx, event)
    await media_retention.on_job_ended(tx, event, event.payload.job_id)


HANDLERS: HandlerTable = {
    **dict.fromkeys(_STATES, on_run_moved),
    **dict.fromkeys((JobSucceeded, JobFailed, JobCancelled, JobStopped), on_job_finished),
    JobQueued: on_job_queued,
    AllocationGranted: ranks.on_slots_granted,
    **silences.HANDLERS,
}


async def take_reports(
    tokens: RunTokens, tx: Tx, records: Sequence[Record]
) -> Sequence[InvalidRecord]:
    """Take heartbeats, warnings and descriptions. Other reports are not for this service."""
    by_run: dict[str, list[PodHeartbeat]] = {}
    warnings: dict[str, list[PodWarned]] = {}
    described: dict[str, list[PodDescribed]] = {}
    for record in records:
        if header(record.headers, "ce_type") not in _TAKEN:
            continue
        try:
            event = tokens.read(record)
        except InvalidEvent:
            continue  # the scheduler parks the unreadable records of this topic
        payload = None if event is None else event.payload
        if isinstance(payload, PodHeartbeat):
            by_run.setdefault(payload.run_id, []).append(payload)
        elif isinstance(payload, PodWarned):
            warnings.setdefault(payload.run_id, []).append(payload)
        elif isinstance(payload, PodDescribed):
            described.setdefault(payload.run_id, []).append(payload)
    received_at = await store.now(tx.connection)
    # All transactions lock rows in this order.
    for run_id in sorted(by_run.keys() | warnings.keys() | described.keys()):
        if run_id in by_run:
            await _take_heartbeats(tx, by_run[run_id], received_at)
        for warned in warnings.get(run_id, ()):
            await _take_warning(tx, warned)
        for one in described.get(run_id, ()):
            await descriptions.take(tx, one)
    return ()


async def _take_times(
    tx: Tx, run: store.RunRow, heartbeats: Sequence[PodHeartbeat], received_at: float
) -> None:
    """For the time axis of charts only. A pod's own time is never later than ours."""
    clock = run.clock
    points: list[Point] = []
    for heartbeat in heartbeats:
        if heartbeat.step:
            at = min(heartbeat.sent_at.timestamp(), received_at)
            clock, kept = advance_clock(clock, heartbeat.step, at)
            points += kept
    if clock is not None and clock != run.clock:
        await times_store.save(tx.connection, run.run_id, clock, points)


async def _take_warning(tx: Tx, warned: PodWarned) -> None:
    """Emit a warning or an alert that is new for its run, while the run has not too many."""
    run = await store.lock_run(
        tx.connection, warned.run_id, warned.job_id, warned.tenant_id, warned.attempt
    )
    if warned.warning == ALERT:
        alert = alerts.of(run, AlertKind.SCRIPT, warned.detail)
        await alerts.raise_once(tx, alert, about=warned.detail)
        return
    number = await store.add_warning(tx.connection, run.run_id, warned.detail)
    if number is None:
        return
    event = RunWarned(
        **alerts.run_of(run), number=number, warning=warned.warning, detail=warned.detail
    )
    await tx.emit(event, tenant_id=run.tenant_id)
    WARNINGS.inc()
    log.info("run warned", run_id=run.run_id, warning=warned.warning, tenant_id=run.tenant_id)


async def _take_heartbeats(tx: Tx, heartbeats: Sequence[PodHeartbeat], received_at: float) -> None:
    """Fold heartbeats of one run into its pace."""
    last = heartbeats[-1]
    run = await store.lock_run(
        tx.connection, last.run_id, last.job_id, last.tenant_id, last.attempt
    )
    if run.has_ended:
        return
    progress = run.progress
    for heartbeat in heartbeats:
        beat = Heartbeat(received_at, heartbeat.phase, heartbeat.step, heartbeat.doing is not None)
        if heartbeat.quiet_seconds is not None:
            beat = replace(beat, quiet_seconds=heartbeat.quiet_seconds)
        progress = advance(progress, beat)
    assert progress is not None
    await store.set_progress(tx.connection, run.run_id, progress)
    await _take_times(tx, run, heartbeats, received_at)

    alert = partial(alerts.of, run, step=progress.step)
    # Most batches bring a step, and need not ask.
    asked = None
    if progress.still_seconds:
        asked = (await watched_of(tx.connection, run.job_id)).stalled_seconds
    if not is_stalled(progress, asked):
        detail = f"the run makes progress again: step {progress.step}"
        await alerts.clear(tx, run, AlertKind.STALLED, detail)
    elif run.state == RunState.RUNNING:
        detail = f"no step for {stall_limit(progress, asked):.0f} s, though heartbeats arrive"
        await alerts.raise_once(tx, alert(AlertKind.STALLED, detail), again=True)
    num_dropped = max(heartbeat.num_dropped_samples for heartbeat in heartbeats)
    if num_dropped:
        detail = f"{num_dropped} samples did not fit the pod's buffer; training was not delayed"
        await alerts.raise_once(tx, alert(AlertKind.SAMPLES_DROPPED, detail))
    num_refused = max(heartbeat.num_refused_samples for heartbeat in heartbeats)
    if num_refused:
        detail = (
            f"{num_refused} samples were left out: their values are not numbers, or their names "
            "are not valid; the log names them, with the fix"
        )
        await alerts.raise_once(tx, alert(AlertKind.SAMPLES_DROPPED, detail), about="refused")
