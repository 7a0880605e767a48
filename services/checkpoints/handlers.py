"""What the checkpoints service does with each event: store facts, and intents for the worker.

No handler touches the object store: a pod's report is a hint, which becomes an intent that the
worker carries out. Keys in a report are looked up only under the job of the run in its record key.
"""

from collections.abc import Callable

from drivetrain_schemas.allocations import AllocationGranted
from drivetrain_schemas.checkpoints import (
    CheckpointPin,
    CheckpointPinned,
    CheckpointPinRejected,
    CheckpointWriteFailed,
    CheckpointWritten,
    RunResumed,
)
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobQueued
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLost,
    RunSucceeded,
)
from services.checkpoints import saving, store, store_checkpoints, store_intents
from services.checkpoints.core.location import locate, mentioned
from services.checkpoints.core.retention import Policy
from services.checkpoints.instruments import REFUSED_HINTS
from services.checkpoints.pruning import UNFINISHED_KEPT_SECONDS
from services.checkpoints.store import Job, Run
from services.runtime import logs
from services.runtime.processing import HandlerTable
from services.runtime.transaction import Tx

log = logs.get()

RunEnded = RunSucceeded | RunFailed | RunLost | RunCancelled | RunInterrupted
MAX_REJECTED = 100


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

    async def on_written(tx: Tx, event: Event[CheckpointWritten]) -> None:
        written = event.payload
        location = locate(written.tenant_id, written.job_id, written.manifest_key)
        if location is None:
            _refuse_hint(event)
            return
        await store_intents.want(
            tx.connection, "verify", written.job_id, location.manifest_key, {"is_by_size": False}
        )
        tx.after_commit(wake)

    async def on_resumed(tx: Tx, event: Event[RunResumed]) -> None:
        resumed = event.payload
        await store.lock_job(tx.connection, resumed.job_id)
        for text in resumed.rejected[:MAX_REJECTED]:
            named = mentioned(resumed.tenant_id, resumed.job_id, text)
            if named is None:
                _refuse_hint(event)
                continue
            await store_intents.want(
                tx.connection, "verify", resumed.job_id, named.manifest_key, {"is_doubted": True}
            )
        if resumed.manifest_key is not None:
            location = locate(resumed.tenant_id, resumed.job_id, resumed.manifest_key)
            if location is None:
                _refuse_hint(event)
            else:
                facts = resumed.model_dump(mode="json")
                job_id, run_id = resumed.job_id, resumed.run_id
                await store_intents.want(tx.connection, "restore", job_id, run_id, facts)
        tx.after_commit(wake)

    return {
        JobQueued: on_queued,
        AllocationGranted: on_granted,
        RunSucceeded: on_run_ended,
        RunFailed: on_run_ended,
        RunLost: on_run_ended,
        RunCancelled: on_run_ended,
        RunInterrupted: on_run_ended,
        CheckpointWritten: on_written,
        RunResumed: on_resumed,
        CheckpointWriteFailed: on_write_failed,
        CheckpointPin: on_pin,
    }


async def on_write_failed(tx: Tx, event: Event[CheckpointWriteFailed]) -> None:
    """A rank could not save; the report is accepted from the job's newest live run only."""
    failed = event.payload
    job = await store.lock_job(tx.connection, failed.job_id)
    run = _run_of(failed)
    await saving.note_failure(tx, job, run, failed.reason, failed.detail, failed.step)


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
    pinned = CheckpointPinned(
        checkpoint_id=row.checkpoint_id,
        tenant_id=event.tenant_id,
        job_id=row.job_id,
        run_id=row.run_id,
        attempt=row.attempt,
        fence=row.fence,
        step=row.step,
    )
    await tx.emit(pinned, tenant_id=event.tenant_id, cause=event)
    log.info("checkpoint pinned", checkpoint_id=row.checkpoint_id, job_id=row.job_id)


def _run_of(payload: AllocationGranted | RunEnded | CheckpointWriteFailed) -> Run:
    return Run(payload.run_id, payload.job_id, payload.attempt, payload.fence)


def _refuse_hint(event: Event[CheckpointWritten] | Event[RunResumed]) -> None:
    """A text that does not name a checkpoint of this job is ignored."""
    REFUSED_HINTS.inc()
    log.warning("hint names no checkpoint of its job", type=event.type, run_id=event.payload.run_id)
