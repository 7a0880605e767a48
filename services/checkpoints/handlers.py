"""What the checkpoints service does with each event: store facts, and intents for the worker.

No handler touches the object store: what is to be done there becomes an intent, which the worker
carries out. The reports of pods are handled in `reports.py`.
"""

from collections.abc import Callable

from drivetrain_schemas.allocations import AllocationGranted
from drivetrain_schemas.checkpoints import (
    CheckpointPin,
    CheckpointPinRejected,
)
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobQueued
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLost,
    RunStopped,
    RunSucceeded,
)
from services.checkpoints import messages, store, store_checkpoints, store_intents
from services.checkpoints.core.retention import Policy
from services.checkpoints.pruning import UNFINISHED_KEPT_SECONDS
from services.checkpoints.store import Job, Run
from services.runtime import logs
from services.runtime.processing import HandlerTable
from services.runtime.transaction import Tx

log = logs.get()

RunEnded = RunSucceeded | RunFailed | RunLost | RunCancelled | RunInterrupted | RunStopped


def handlers(wake: Callable[[], None]) -> HandlerTable:
    """The table of handled events. `wake` is called once there is something to do."""

    async def on_queued(tx: Tx, event: Event[JobQueued]) -> None:
        spec = event.payload.spec
        metric = spec.metric
        minutes = spec.checkpoint.every_minutes
        await store.lock_job(tx.connection, event.payload.job_id)
        job = Job(
            job_id=event.payload.job_id,
            tenant_id=event.tenant_id,
            policy=Policy(
                spec.checkpoint.keep_last,
                spec.checkpoint.keep_best,
                metric.goal.value if metric else None,
            ),
            metric=metric.name if metric else None,
            highest_fence=0,  # which no event of this kind changes
            every_seconds=60 * minutes if minutes else None,
            every_steps=spec.checkpoint.every_steps,
        )
        await store.set_policy(tx.connection, job, tenant_id=event.tenant_id)

    async def on_granted(tx: Tx, event: Event[AllocationGranted]) -> None:
        granted = event.payload
        await store.lock_job(tx.connection, granted.job_id)
        await store.raise_fence(tx.connection, granted.job_id, granted.fence)
        await store.put_run(tx.connection, _run_of(granted), is_live=True)
        await store_intents.want(tx.connection, "list", granted.job_id)
        tx.after_commit(wake)

    async def on_run_ended(tx: Tx, event: Event[RunEnded]) -> None:
        ended = event.payload
        await store.lock_job(tx.connection, ended.job_id)
        await store.put_run(tx.connection, _run_of(ended), is_live=False)
        await store.delete_failure(tx.connection, ended.run_id)
        await store_intents.want(tx.connection, "list", ended.job_id)
        await store_intents.want_in(
            tx.connection, "tidy", ended.job_id, "", UNFINISHED_KEPT_SECONDS
        )
        tx.after_commit(wake)

    return {
        JobQueued: on_queued,
        AllocationGranted: on_granted,
        RunSucceeded: on_run_ended,
        RunFailed: on_run_ended,
        RunLost: on_run_ended,
        RunCancelled: on_run_ended,
        RunInterrupted: on_run_ended,
        RunStopped: on_run_ended,
        CheckpointPin: on_pin,
    }


async def on_pin(tx: Tx, event: Event[CheckpointPin]) -> None:
    """Pin a good checkpoint of the sender's own tenant; otherwise refuse."""
    pin = event.payload
    job = await store.lock_job(tx.connection, pin.job_id)
    row = await store_checkpoints.find(tx.connection, pin.job_id, pin.checkpoint_id)
    if row is None or row.state != "good" or job.tenant_id != event.tenant_id:
        rejected = CheckpointPinRejected(
            job_id=pin.job_id,
            checkpoint_id=pin.checkpoint_id,
            command_event_id=event.event_id,
            detail="the checkpoint does not exist or is no longer kept",
        )
        await tx.emit(rejected, tenant_id=event.tenant_id, cause=event)
        return
    await store_checkpoints.set_pinned(tx.connection, row.checkpoint_id)
    pinned = messages.pinned(row, event.tenant_id)
    await tx.emit(pinned, tenant_id=event.tenant_id, cause=event)
    log.info("checkpoint pinned", checkpoint_id=row.checkpoint_id, job_id=row.job_id)


def _run_of(payload: AllocationGranted | RunEnded) -> Run:
    return Run(payload.run_id, payload.job_id, payload.attempt, payload.fence)
