"""Catalogue rows into the events that tell of them. Pure."""

from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointRejected,
    CheckpointRestored,
    Manifest,
    RunResumed,
)
from drivetrain_schemas.ids import checkpoint_id_for
from services.checkpoints.core.location import Location
from services.checkpoints.store import CheckpointRow
from services.checkpoints.verification import Flaw


def row_of_manifest(location: Location, manifest: Manifest, *, may_lead: bool) -> CheckpointRow:
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
    )


def row_of_flaw(location: Location, job_id: str, run: tuple[str, int]) -> CheckpointRow:
    """`run`: id and attempt of the run that was granted the fence in the key."""
    return CheckpointRow(
        checkpoint_id=checkpoint_id_for(location.manifest_key),
        job_id=job_id,
        manifest_key=location.manifest_key,
        run_id=run[0],
        attempt=run[1],
        fence=location.fence,
        step=location.step,
        state="rejected",
    )


def committed(
    row: CheckpointRow, tenant_id: str, manifest: Manifest, *, is_latest: bool, is_best: bool
) -> CheckpointCommitted:
    return CheckpointCommitted(
        checkpoint_id=row.checkpoint_id,
        tenant_id=tenant_id,
        job_id=row.job_id,
        run_id=row.run_id,
        attempt=row.attempt,
        fence=row.fence,
        step=row.step,
        manifest_key=row.manifest_key,
        size_bytes=row.size_bytes,
        num_shards=len(manifest.shards),
        epoch=manifest.epoch,
        metrics=manifest.metrics,
        is_latest=is_latest,
        is_best=is_best,
    )


def rejected(row: CheckpointRow, tenant_id: str, flaw: Flaw) -> CheckpointRejected:
    return CheckpointRejected(
        checkpoint_id=row.checkpoint_id,
        tenant_id=tenant_id,
        job_id=row.job_id,
        run_id=row.run_id,
        attempt=row.attempt,
        fence=row.fence,
        step=row.step,
        manifest_key=row.manifest_key,
        reason=flaw.reason,
        detail=flaw.detail,
    )


def restored(row: CheckpointRow, tenant_id: str, resumed: RunResumed) -> CheckpointRestored:
    return CheckpointRestored(
        checkpoint_id=row.checkpoint_id,
        tenant_id=tenant_id,
        job_id=row.job_id,
        run_id=row.run_id,
        attempt=row.attempt,
        fence=row.fence,
        step=row.step,
        resumed_by_run_id=resumed.run_id,
        resumed_by_attempt=resumed.attempt,
        load_seconds=resumed.load_seconds,
        rejected=resumed.rejected,
    )


def deleted(row: CheckpointRow, tenant_id: str, reason: str) -> CheckpointDeleted:
    return CheckpointDeleted(
        checkpoint_id=row.checkpoint_id,
        tenant_id=tenant_id,
        job_id=row.job_id,
        run_id=row.run_id,
        attempt=row.attempt,
        fence=row.fence,
        step=row.step,
        size_bytes=row.size_bytes,
        reason=reason,
    )
