"""Events from rows of the catalogue. Pure; texts of pods are bounded here."""

from typing import Any

from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointingFailed,
    CheckpointingRecovered,
    CheckpointingWentBack,
    CheckpointPinned,
    CheckpointRejected,
    CheckpointRestored,
    Manifest,
    RunResumed,
    SaveFailure,
)
from drivetrain_schemas.ids import checkpoint_id_for
from services.checkpoints.core.catalogue import Checkpoint
from services.checkpoints.core.location import Location
from services.checkpoints.store import Run
from services.checkpoints.store_checkpoints import CheckpointRow
from services.checkpoints.verification import Flaw

MAX_LISTED = 20
MAX_CHARACTERS = 512


def row_of_manifest(
    location: Location, manifest: Manifest, *, may_lead: bool, is_read: bool
) -> CheckpointRow:
    return CheckpointRow(
        checkpoint_id=checkpoint_id_for(location.manifest_key),
        job_id=manifest.job_id,
        manifest_key=location.manifest_key,
        run_id=manifest.run_id,
        attempt=manifest.attempt,
        fence=manifest.fence,
        step=manifest.step,
        state="good",
        size_bytes=sum(shard.size_bytes for shard in manifest.shards),
        metrics=manifest.metrics,
        may_lead=may_lead,
        is_read=is_read,
    )


def row_of_flaw(location: Location, run: Run) -> CheckpointRow:
    """`run`: the one that was granted the fence in the key."""
    return CheckpointRow(
        checkpoint_id=checkpoint_id_for(location.manifest_key),
        job_id=run.job_id,
        manifest_key=location.manifest_key,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=location.fence,
        step=location.step,
        state="rejected",
    )


def _about(row: CheckpointRow, tenant_id: str) -> dict[str, Any]:
    """What every event says of a checkpoint."""
    names = ("checkpoint_id", "job_id", "run_id", "attempt", "fence", "step")
    return {name: getattr(row, name) for name in names} | {"tenant_id": tenant_id}


def committed(
    row: CheckpointRow, tenant_id: str, manifest: Manifest, *, is_latest: bool, is_best: bool
) -> CheckpointCommitted:
    return CheckpointCommitted(
        **_about(row, tenant_id),
        manifest_key=row.manifest_key,
        size_bytes=row.size_bytes,
        num_shards=len(manifest.shards),
        epoch=manifest.epoch,
        metrics=manifest.metrics,
        is_latest=is_latest,
        is_best=is_best,
        files=manifest.files,
        blocked_seconds=manifest.blocked_seconds,
        verified_by="read" if row.is_read else "size",
    )


def rejected(row: CheckpointRow, tenant_id: str, flaw: Flaw) -> CheckpointRejected:
    return CheckpointRejected(
        **_about(row, tenant_id),
        manifest_key=row.manifest_key,
        reason=flaw.reason,
        detail=flaw.detail,
    )


def restored(row: CheckpointRow, tenant_id: str, resumed: RunResumed) -> CheckpointRestored:
    return CheckpointRestored(
        **_about(row, tenant_id),
        resumed_by_run_id=resumed.run_id,
        resumed_by_attempt=resumed.attempt,
        load_seconds=resumed.load_seconds,
        rejected=tuple(text[:MAX_CHARACTERS] for text in resumed.rejected[:MAX_LISTED]),
        num_rejected_omitted=max(0, len(resumed.rejected) - MAX_LISTED),
    )


def pinned(row: CheckpointRow, tenant_id: str) -> CheckpointPinned:
    return CheckpointPinned(**_about(row, tenant_id))


def deleted(row: CheckpointRow, tenant_id: str, reason: str) -> CheckpointDeleted:
    return CheckpointDeleted(
        **_about(row, tenant_id),
        size_bytes=row.size_bytes,
        reason=reason,
    )


def failing(
    run: Run,
    tenant_id: str,
    reason: SaveFailure,
    detail: str,
    steps: tuple[int | None, int | None],
) -> CheckpointingFailed:
    """`steps`: of the newest good checkpoint, and of the save that failed."""
    return CheckpointingFailed(
        tenant_id=tenant_id,
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=run.fence,
        reason=reason,
        detail=detail[:MAX_CHARACTERS],
        last_step=steps[0],
        failed_step=steps[1],
    )


def went_back(row: CheckpointRow, tenant_id: str, further: Checkpoint) -> CheckpointingWentBack:
    return CheckpointingWentBack(
        tenant_id=tenant_id,
        job_id=row.job_id,
        run_id=row.run_id,
        attempt=row.attempt,
        fence=row.fence,
        step=row.step,
        further_checkpoint_id=further.checkpoint_id,
        further_step=further.step,
    )


def recovered(run: Run, tenant_id: str, step: int) -> CheckpointingRecovered:
    return CheckpointingRecovered(
        tenant_id=tenant_id,
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=run.fence,
        step=step,
    )
