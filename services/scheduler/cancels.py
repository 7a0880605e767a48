"""Cancels: of waiting jobs, of running jobs, and those that arrive before the job itself.

The cancel of a client with another partitioner or a wrong key may be read before its submit. So a
cancel of an unknown job is kept for a while and applied when the job arrives; if none arrives in
time, the answer is `no_such_job`.
"""

from collections.abc import Sequence
from datetime import timedelta

from drivetrain_schemas.envelope import Cause, Event
from drivetrain_schemas.jobs import JobCancel, JobCancelling, JobState, RejectionReason
from drivetrain_schemas.runs import RunState
from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform
from services.runtime.transaction import Tx
from services.scheduler import instruments, store, store_cancels, store_runs, transitions
from services.scheduler.answers import reject
from services.scheduler.core.admission import Refusal
from services.scheduler.store import JobRow
from services.scheduler.store_cancels import EarlyCancel

log = logs.get()

KEPT = timedelta(seconds=30)
MAX_KEPT = 10_000
MAX_KEPT_OF_TENANT = 1_000
EXPIRE_SECONDS = 5.0
EXPIRE_BATCH = 500


async def handle(tx: Tx, event: Event[JobCancel]) -> None:
    """Cancel the job, refuse to, or wait for the job. The caller holds the writer lock."""
    cause = Cause(event.event_id, event.correlation_id, event.traceparent)
    cancel = EarlyCancel(cause, event.payload.job_id, event.tenant_id, event.payload.reason)
    job = await store.job(tx.connection, cancel.job_id)
    if job is not None:
        await _apply(tx, cancel, job)
    elif await store_cancels.insert(tx.connection, cancel, MAX_KEPT, MAX_KEPT_OF_TENANT):
        _count(tx, "kept")
        log.info("cancel kept until its job arrives", job_id=cancel.job_id)
    else:
        _count(tx, "too_many")
        await _no_such_job(tx, cancel)


async def apply_early(tx: Tx, job_ids: Sequence[str]) -> None:
    """Apply the cancels that arrived before these jobs, which were queued just now."""
    if not job_ids:
        return
    for cancel in await store_cancels.take(tx.connection, job_ids):
        _count(tx, "applied")
        await _apply(tx, cancel, await store.job(tx.connection, cancel.job_id))


async def expire(platform: Platform) -> None:
    """A task of the service: answer the cancels for which no job arrived."""
    while True:
        try:
            async with platform.database.transaction() as tx:
                num_expired = await expire_once(tx)
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning("early cancels not expired", error=repr(error))
            num_expired = 0
        if num_expired < EXPIRE_BATCH:
            await platform.clock.sleep(EXPIRE_SECONDS)


async def expire_once(tx: Tx, age: timedelta = KEPT) -> int:
    """Answer some of those that are older than `age`; how many."""
    expired = await store_cancels.take_older(tx.connection, age, EXPIRE_BATCH)
    for cancel in expired:
        _count(tx, "expired")
        await _no_such_job(tx, cancel)
    return len(expired)


async def _apply(tx: Tx, cancel: EarlyCancel, job: JobRow | None) -> None:
    """End a waiting job at once; stop a running one."""
    if job is None or job.tenant_id != cancel.tenant_id:
        await _no_such_job(tx, cancel)
    elif job.state.is_final:
        detail = f"the job has finished: {job.state}"
        refusal = Refusal(RejectionReason.ALREADY_FINISHED, detail, "job_id")
        await reject(tx, cancel.cause, cancel.tenant_id, job.job_id, refusal)
    elif not job.is_cancelled:
        await _cancel(tx, cancel)


async def _cancel(tx: Tx, cancel: EarlyCancel) -> None:
    await store.set_cancelled(tx.connection, cancel.job_id, cancel.reason)
    cancelling = JobCancelling(job_id=cancel.job_id, reason=cancel.reason)
    await tx.emit(cancelling, tenant_id=cancel.tenant_id, cause=cancel.cause)
    job = await store.job(tx.connection, cancel.job_id)
    assert job is not None
    if job.state is JobState.QUEUED:
        await transitions.cancel_queued(tx, job)
    else:
        for run in await store_runs.live_runs_of(tx.connection, [job.job_id]):
            if run.state is not RunState.STOPPING:
                await transitions.stop(tx, run, "cancel")
    tx.after_commit(instruments.REQUESTS.labels("cancelled").inc)


async def _no_such_job(tx: Tx, cancel: EarlyCancel) -> None:
    detail = f"there is no job {cancel.job_id}"
    refusal = Refusal(RejectionReason.NO_SUCH_JOB, detail, "job_id")
    await reject(tx, cancel.cause, cancel.tenant_id, cancel.job_id, refusal)


def _count(tx: Tx, outcome: str) -> None:
    tx.after_commit(instruments.EARLY_CANCELS.labels(outcome).inc)
