"""One function per consumed event: write its timeline row, then what it says into the read model.

A projection: handlers emit nothing, read no clock, and give the same tables whenever they run over
the same topics. Every handler takes the stream's cursor first, whose row lock lets one handler
commit at a time over all processes, so the live stream can follow cursors without gaps.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointPinned,
    CheckpointPinRejected,
    CheckpointRejected,
    CheckpointRestored,
)
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import (
    JobCancelled,
    JobCancelling,
    JobFailed,
    JobQueued,
    JobRequestRejected,
    JobRetrying,
    JobSucceeded,
    JobWaiting,
    RejectionReason,
)
from drivetrain_schemas.metrics import AlertCleared, AlertRaised
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.registry import all_kinds
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunHeard,
    RunInterrupted,
    RunLost,
    RunStarted,
    RunStarting,
    RunSucceeded,
    RunSuspected,
)
from drivetrain_schemas.studies import (
    StudyCompleted,
    StudyRequestRejected,
    StudyStarted,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)
from services.gateway import store, store_catalogue
from services.gateway.instruments import PROJECTED
from services.runtime.processing import Handler, HandlerTable
from services.runtime.transaction import Tx

# Refusals of commands about a job; they make none.
_OF_KNOWN_JOBS = (RejectionReason.NO_SUCH_JOB, RejectionReason.ALREADY_FINISHED)
Projection = Callable[[Tx, Event[Any]], Awaitable[None]]


def projection_handlers(on_commit: Callable[[], None]) -> HandlerTable:
    """A handler for every event type we know; `on_commit` wakes the live stream."""
    return {
        payload: _handler(PROJECTIONS.get(payload), on_commit)
        for payload in all_kinds().values()
        if payload.kind.topic.name.startswith("events.")
    }


def _handler(project: Projection | None, on_commit: Callable[[], None]) -> Handler:
    async def handle(tx: Tx, event: Event[Payload]) -> None:
        cursor = await store.next_cursor(tx.connection)
        await store.insert_timeline(tx.connection, cursor, event)
        if project is not None:
            await project(tx, event)
        PROJECTED.labels(event.type).inc()
        tx.after_commit(on_commit)

    return handle


async def on_job_queued(tx: Tx, event: Event[JobQueued]) -> None:
    await store.upsert_queued_job(tx.connection, event)


async def on_job_waiting(tx: Tx, event: Event[JobWaiting]) -> None:
    await store.set_job_waiting(tx.connection, event.payload, event.seq or 0, event.occurred_at)


async def on_job_retrying(tx: Tx, event: Event[JobRetrying]) -> None:
    retry = event.payload
    if await _move_job(tx, event, "queued"):
        detail = f"attempt {retry.next_attempt} follows after {retry.backoff_seconds:g} s"
        await store.set_job_retry(tx.connection, retry.job_id, detail, retry.not_before_at)


async def on_job_cancelling(tx: Tx, event: Event[JobCancelling]) -> None:
    await store.set_job_cancelling(tx.connection, event.payload.job_id)


async def on_job_succeeded(tx: Tx, event: Event[JobSucceeded]) -> None:
    payload = event.payload
    result = payload.result.model_dump(mode="json") if payload.result else None
    if await _move_job(tx, event, "succeeded"):
        await store.set_job_finished(tx.connection, payload.job_id, payload.finished_at, "", result)


async def on_job_failed(tx: Tx, event: Event[JobFailed]) -> None:
    payload = event.payload
    if await _move_job(tx, event, "failed"):
        await store.set_job_finished(
            tx.connection, payload.job_id, payload.finished_at, payload.detail, None
        )


async def on_job_cancelled(tx: Tx, event: Event[JobCancelled]) -> None:
    payload = event.payload
    if await _move_job(tx, event, "cancelled"):
        await store.set_job_finished(
            tx.connection, payload.job_id, payload.finished_at, payload.reason, None
        )


async def on_job_request_rejected(tx: Tx, event: Event[JobRequestRejected]) -> None:
    """A request that no contract fits is known by its refusal alone, and listed at its time."""
    rejected = event.payload
    if rejected.reason not in _OF_KNOWN_JOBS:
        await store.stub_job(tx.connection, rejected.job_id, event.tenant_id, event.occurred_at)
    await store_catalogue.insert_rejection(
        tx.connection,
        event,
        rejected.job_id,
        rejected.command_event_id,
        rejected.reason.value,
        rejected.errors,
    )


async def on_run_starting(tx: Tx, event: Event[RunStarting]) -> None:
    run = event.payload
    await store.insert_run(tx.connection, run, event.seq or 0, event.occurred_at)
    if await _move_job(tx, event, "starting"):
        await store.set_job_run(tx.connection, run.job_id, run.run_id, run.attempt)


async def on_run_started(tx: Tx, event: Event[RunStarted]) -> None:
    run = event.payload
    if await store.set_run_state(tx.connection, run, event.seq or 0, "running"):
        await store.set_run_started(tx.connection, run.run_id, run.started_at)
    if await _move_job(tx, event, "running"):
        await store.set_job_run(tx.connection, run.job_id, run.run_id, run.attempt)
        await store.set_job_started(tx.connection, run.job_id, run.started_at)


async def on_run_suspected(tx: Tx, event: Event[RunSuspected]) -> None:
    await store.set_run_state(tx.connection, event.payload, event.seq or 0, "suspect")


async def on_run_heard(tx: Tx, event: Event[RunHeard]) -> None:
    await store.set_run_state(tx.connection, event.payload, event.seq or 0, "running")


async def on_run_succeeded(tx: Tx, event: Event[RunSucceeded]) -> None:
    await _end_run(tx, event, "succeeded", "")


async def on_run_failed(tx: Tx, event: Event[RunFailed]) -> None:
    if await _end_run(tx, event, "failed", ""):
        await store.set_run_failure(tx.connection, event.payload)


async def on_run_lost(tx: Tx, event: Event[RunLost]) -> None:
    await _end_run(tx, event, "lost", event.payload.detail)


async def on_run_cancelled(tx: Tx, event: Event[RunCancelled]) -> None:
    await _end_run(tx, event, "cancelled", "")


async def on_run_interrupted(tx: Tx, event: Event[RunInterrupted]) -> None:
    await _end_run(tx, event, "interrupted", "")


async def on_allocation_granted(tx: Tx, event: Event[AllocationGranted]) -> None:
    granted = event.payload
    await store.upsert_allocation(tx.connection, granted, None)
    await store.insert_slots(tx.connection, granted.allocation_id, granted.slots)


async def on_allocation_released(tx: Tx, event: Event[AllocationReleased]) -> None:
    released = event.payload
    await store.upsert_allocation(tx.connection, released, released.released_at)
    await store.insert_slots(tx.connection, released.allocation_id, released.slots)


async def on_node_registered(tx: Tx, event: Event[NodeRegistered]) -> None:
    await store_catalogue.upsert_node(
        tx.connection, event.payload, event.seq or 0, event.occurred_at
    )


async def on_node_removed(tx: Tx, event: Event[NodeRemoved]) -> None:
    await store_catalogue.set_node_removed(
        tx.connection, event.payload, event.seq or 0, event.occurred_at
    )


async def on_checkpoint_committed(tx: Tx, event: Event[CheckpointCommitted]) -> None:
    await store_catalogue.stub_checkpoint(tx.connection, event.payload)
    await store_catalogue.set_checkpoint_committed(
        tx.connection, event.payload, event.seq or 0, event.occurred_at
    )


async def on_checkpoint_rejected(tx: Tx, event: Event[CheckpointRejected]) -> None:
    await store_catalogue.stub_checkpoint(tx.connection, event.payload)
    await store_catalogue.set_checkpoint_rejected(tx.connection, event.payload)


async def on_checkpoint_restored(tx: Tx, event: Event[CheckpointRestored]) -> None:
    await store_catalogue.stub_checkpoint(tx.connection, event.payload)
    await store_catalogue.set_checkpoint_restored(tx.connection, event.payload, event.occurred_at)


async def on_checkpoint_deleted(tx: Tx, event: Event[CheckpointDeleted]) -> None:
    await store_catalogue.stub_checkpoint(tx.connection, event.payload)
    await store_catalogue.set_checkpoint_deleted(tx.connection, event.payload, event.occurred_at)


async def on_checkpoint_pinned(tx: Tx, event: Event[CheckpointPinned]) -> None:
    await store_catalogue.stub_checkpoint(tx.connection, event.payload)
    await store_catalogue.set_checkpoint_pinned(tx.connection, event.payload.checkpoint_id)


async def on_pin_rejected(tx: Tx, event: Event[CheckpointPinRejected]) -> None:
    rejected = event.payload
    await store_catalogue.insert_rejection(
        tx.connection,
        event,
        rejected.checkpoint_id,
        rejected.command_event_id,
        "no_such_checkpoint",
    )


async def on_charge_recorded(tx: Tx, event: Event[ChargeRecorded]) -> None:
    await store_catalogue.insert_charge(tx.connection, event.payload)


async def on_alert(tx: Tx, event: Event[AlertRaised] | Event[AlertCleared]) -> None:
    await store_catalogue.upsert_alert(
        tx.connection, event.payload, event.seq or 0, event.occurred_at
    )


async def on_study_started(tx: Tx, event: Event[StudyStarted]) -> None:
    await store_catalogue.upsert_study_started(tx.connection, event)


async def on_study_request_rejected(tx: Tx, event: Event[StudyRequestRejected]) -> None:
    rejected = event.payload
    await store_catalogue.stub_study(
        tx.connection, rejected.study_id, event.tenant_id, event.occurred_at
    )
    await store_catalogue.insert_rejection(
        tx.connection,
        event,
        rejected.study_id,
        rejected.command_event_id,
        rejected.reason,
        rejected.errors,
    )


async def on_trial(
    tx: Tx, event: Event[TrialProposed] | Event[TrialCompleted] | Event[TrialFailed]
) -> None:
    await store_catalogue.stub_study(tx.connection, event.payload.study_id, event.tenant_id)
    await store_catalogue.upsert_trial(tx.connection, event.payload, event.seq or 0)


async def on_study_completed(tx: Tx, event: Event[StudyCompleted]) -> None:
    await store_catalogue.stub_study(tx.connection, event.payload.study_id, event.tenant_id)
    await store_catalogue.set_study_completed(tx.connection, event.payload)


async def _move_job(tx: Tx, event: Event[Any], state: str) -> bool:
    """Stub first: the job's own first event may be the one that was parked."""
    await store.stub_job(tx.connection, event.payload.job_id, event.tenant_id)
    return await store.set_job_state(
        tx.connection, event.payload.job_id, event.seq or 0, state, event.occurred_at
    )


async def _end_run(tx: Tx, event: Event[Any], state: str, detail: str) -> bool:
    run = event.payload
    is_moved = await store.set_run_state(tx.connection, run, event.seq or 0, state)
    if is_moved:
        await store.set_run_ended(tx.connection, run.run_id, run.ended_at, detail)
    return is_moved


PROJECTIONS: dict[type[Payload], Projection] = {
    JobQueued: on_job_queued,
    JobWaiting: on_job_waiting,
    JobRetrying: on_job_retrying,
    JobCancelling: on_job_cancelling,
    JobSucceeded: on_job_succeeded,
    JobFailed: on_job_failed,
    JobCancelled: on_job_cancelled,
    JobRequestRejected: on_job_request_rejected,
    RunStarting: on_run_starting,
    RunStarted: on_run_started,
    RunSuspected: on_run_suspected,
    RunHeard: on_run_heard,
    RunSucceeded: on_run_succeeded,
    RunFailed: on_run_failed,
    RunLost: on_run_lost,
    RunCancelled: on_run_cancelled,
    RunInterrupted: on_run_interrupted,
    AllocationGranted: on_allocation_granted,
    AllocationReleased: on_allocation_released,
    NodeRegistered: on_node_registered,
    NodeRemoved: on_node_removed,
    CheckpointCommitted: on_checkpoint_committed,
    CheckpointRejected: on_checkpoint_rejected,
    CheckpointRestored: on_checkpoint_restored,
    CheckpointDeleted: on_checkpoint_deleted,
    CheckpointPinned: on_checkpoint_pinned,
    CheckpointPinRejected: on_pin_rejected,
    ChargeRecorded: on_charge_recorded,
    AlertRaised: on_alert,
    AlertCleared: on_alert,
    StudyStarted: on_study_started,
    StudyRequestRejected: on_study_request_rejected,
    TrialProposed: on_trial,
    TrialCompleted: on_trial,
    TrialFailed: on_trial,
    StudyCompleted: on_study_completed,
}
