"""Runs that continue without new checkpoints: the events for its beginning and its end.

All of it under the job's row lock. A report with a fence below the job's highest is ignored
(docs/architecture.md, rule 4). The end of the run ends it without an event.
"""

from drivetrain_schemas.checkpoints import SaveFailure
from services.checkpoints import messages, store, store_checkpoints
from services.checkpoints.core import catalogue
from services.checkpoints.core.saving import is_news, overdue
from services.checkpoints.store import Job, Run
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()


async def note_failure(
    tx: Tx, job: Job, run: Run, reason: SaveFailure, detail: str, step: int | None = None
) -> None:
    """The run could not save. One event per cause."""
    if job.tenant_id is None:
        return
    live = await store.live_run(tx.connection, job.job_id)
    if live is None or live[0] != run or run.fence < job.highest_fence:
        return
    known = await store.failure_of(tx.connection, run.run_id)
    if known is not None and not is_news(known.announced, reason):
        return
    await store.put_failure(tx.connection, run.run_id, reason, step)
    newest = catalogue.latest(await store_checkpoints.good(tx.connection, job))
    last_step = newest.step if newest else None
    payload = messages.failing(run, job.tenant_id, reason, detail, (last_step, step))
    await tx.emit(payload, tenant_id=job.tenant_id)
    log.warning(
        "run fails to save checkpoints",
        job_id=job.job_id,
        run_id=run.run_id,
        reason=reason,
        detail=detail,
        last_step=last_step,
        tenant_id=job.tenant_id,
    )


async def note_overdue(tx: Tx, job: Job) -> None:
    """Check whether the live run has been without a new checkpoint for too long."""
    live = await store.live_run(tx.connection, job.job_id)
    if live is None:
        return
    run, unsaved = live
    detail = overdue(unsaved, job.every_seconds, job.every_steps)
    if detail is not None:
        await note_failure(tx, job, run, SaveFailure.OVERDUE, detail)


async def note_saved(tx: Tx, job: Job, run: Run, step: int) -> None:
    """The run has a new good checkpoint."""
    await store.set_saved(tx.connection, run.run_id)
    known = await store.failure_of(tx.connection, run.run_id)
    if known is None or step < (known.failed_step or 0):
        return  # an older save, verified late
    await store.delete_failure(tx.connection, run.run_id)
    assert job.tenant_id is not None
    payload = messages.recovered(run, job.tenant_id, step)
    await tx.emit(payload, tenant_id=job.tenant_id)
    log.info("run saves checkpoints again", job_id=job.job_id, run_id=run.run_id, step=step)
