"""The changes of a verdict in the catalogue, under the job's row lock.

A key is judged once: a rejected checkpoint never becomes good again, a good one may be rejected.
"""

from collections.abc import Sequence

from drivetrain_schemas.checkpoints import Manifest, RejectedReason
from drivetrain_schemas.ids import checkpoint_id_for
from services.checkpoints import messages, pruning, saving, store, store_checkpoints, store_intents
from services.checkpoints.core import catalogue, retention
from services.checkpoints.core.location import Location
from services.checkpoints.errors import Postponed
from services.checkpoints.instruments import COMMITTED, REJECTED, SIZE_BYTES
from services.checkpoints.store import Job, Run
from services.checkpoints.store_checkpoints import CheckpointRow
from services.checkpoints.verification import Flaw
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()


async def record_good(
    tx: Tx, job: Job, location: Location, manifest: Manifest, *, is_read: bool
) -> None:
    """No flaw was found: in the bytes where `is_read`, else in the sizes."""
    checkpoint_id = checkpoint_id_for(location.manifest_key)
    known = await store_checkpoints.find(tx.connection, job.job_id, checkpoint_id)
    if known is not None:
        if is_read and known.state == "good":
            await store_checkpoints.set_read(tx.connection, checkpoint_id)
            await _delete_expendable(tx, job)
        return
    run = await _run_of(tx, job, manifest.fence)
    if (run.run_id, run.attempt) != (manifest.run_id, manifest.attempt):
        detail = f"fence {manifest.fence} was granted to {run.run_id}, not to {manifest.run_id}"
        await record_flaw(tx, job, location, Flaw(RejectedReason.STALE_FENCE, detail))
        return
    await _commit(tx, job, location, manifest, is_read)
    await saving.note_saved(tx, job, run, manifest.step)


async def record_flaw(tx: Tx, job: Job, location: Location, flaw: Flaw) -> None:
    """The checkpoint is permanently invalid, even if it was good before."""
    assert job.tenant_id is not None
    checkpoint_id = checkpoint_id_for(location.manifest_key)
    await store_checkpoints.forget_read_shards(tx.connection, location.manifest_key)
    row = await store_checkpoints.find(tx.connection, job.job_id, checkpoint_id)
    if row is None:
        run = await _run_of(tx, job, location.fence)
        row = messages.row_of_flaw(location, run)
        await store_checkpoints.insert(tx.connection, row)
    elif row.state == "good":
        await store_checkpoints.set_state(tx.connection, checkpoint_id, "rejected")
    else:
        return
    await tx.emit(messages.rejected(row, job.tenant_id, flaw), tenant_id=job.tenant_id)
    await store_intents.want_in(
        tx.connection, "tidy", job.job_id, "", pruning.REJECTED_KEPT_SECONDS
    )
    REJECTED.labels(flaw.reason).inc()
    log.warning(
        "checkpoint rejected",
        checkpoint_id=checkpoint_id,
        job_id=job.job_id,
        reason=flaw.reason,
        detail=flaw.detail,
        tenant_id=job.tenant_id,
    )


async def record_absent(tx: Tx, job: Job, location: Location) -> None:
    """There is no manifest. A recorded checkpoint was lost; else there never was one to judge."""
    known = checkpoint_id_for(location.manifest_key)
    if await store_checkpoints.find(tx.connection, job.job_id, known) is not None:
        flaw = Flaw(RejectedReason.MANIFEST_UNREADABLE, "manifest: it does not exist")
        await record_flaw(tx, job, location, flaw)


async def _commit(tx: Tx, job: Job, location: Location, manifest: Manifest, is_read: bool) -> None:
    assert job.tenant_id is not None
    may_lead = catalogue.may_lead(manifest.fence, job.highest_fence)
    row = messages.row_of_manifest(location, manifest, may_lead=may_lead, is_read=is_read)
    await store_checkpoints.insert(tx.connection, row)
    good = await store_checkpoints.good(tx.connection, job)
    head = catalogue.latest(good)
    best = catalogue.best_first(good, job.policy.goal)[:1]
    payload = messages.committed(
        row,
        job.tenant_id,
        manifest,
        is_latest=head is not None and head.checkpoint_id == row.checkpoint_id,
        is_best=bool(best) and best[0].checkpoint_id == row.checkpoint_id,
    )
    await tx.emit(payload, tenant_id=job.tenant_id)
    await _announce_if_behind(tx, job, row, good)
    await _delete_expendable(tx, job)
    COMMITTED.labels(payload.verified_by).inc()
    SIZE_BYTES.observe(payload.size_bytes)
    log.info(
        "checkpoint committed",
        checkpoint_id=row.checkpoint_id,
        job_id=job.job_id,
        fence=row.fence,
        step=row.step,
        is_latest=payload.is_latest,
        verified_by=payload.verified_by,
        tenant_id=job.tenant_id,
    )


async def _announce_if_behind(
    tx: Tx, job: Job, row: CheckpointRow, good: Sequence[catalogue.Checkpoint]
) -> None:
    """The run trained from an earlier step although a further checkpoint is good."""
    assert job.tenant_id is not None
    others = [one for one in good if one.checkpoint_id != row.checkpoint_id]
    (own,) = [one for one in good if one.checkpoint_id == row.checkpoint_id]
    further = catalogue.further(others, own)
    if further is None:
        return
    await tx.emit(messages.went_back(row, job.tenant_id, further), tenant_id=job.tenant_id)
    log.warning(
        "run did not resume from the furthest checkpoint",
        job_id=job.job_id,
        run_id=row.run_id,
        step=row.step,
        further_step=further.step,
        tenant_id=job.tenant_id,
    )


async def _delete_expendable(tx: Tx, job: Job) -> None:
    good = await store_checkpoints.good(tx.connection, job)
    for one in retention.expendable(good, job.policy):
        await store_intents.want_if_unknown(tx.connection, "delete", job.job_id, one.checkpoint_id)


async def _run_of(tx: Tx, job: Job, fence: int) -> Run:
    run = await store.run_of_fence(tx.connection, job.job_id, fence)
    if run is None:
        raise Postponed("the run of this fence is not known yet")
    return run
