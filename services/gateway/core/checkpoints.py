"""A checkpoint as it is shown: committed, rejected, deleted, pinned, restored."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointPinned,
    CheckpointRejected,
    CheckpointRestored,
)
from drivetrain_schemas.envelope import Event
from services.gateway.core.noun import NEVER, Noun, by, newest


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`best_seq` is the number of its commit where it was the best so far; the highest of a job
    is the best."""

    checkpoint_id: str
    tenant_id: str
    job_id: str
    run_id: str
    attempt: int
    fence: int
    step: int
    manifest_key: str | None = None
    committed_seq: int = NEVER
    committed_at: datetime | None = None
    epoch: int | None = None
    size_bytes: int | None = None
    num_shards: int | None = None
    metrics: dict[str, Any] | None = None
    best_seq: int | None = None
    rejected_seq: int = NEVER
    rejected_reason: str | None = None
    rejected_detail: str | None = None
    deleted_seq: int = NEVER
    deleted_at: datetime | None = None
    deleted_reason: str | None = None
    is_pinned: bool = False
    restored_by_attempt: int | None = None


def _committed(checkpoint: Checkpoint, event: Event[CheckpointCommitted]) -> Checkpoint:
    found = event.payload
    return newest(
        checkpoint,
        "committed_seq",
        event,
        committed_at=event.occurred_at,
        manifest_key=found.manifest_key,
        epoch=found.epoch,
        size_bytes=found.size_bytes,
        num_shards=found.num_shards,
        metrics=found.metrics,
        best_seq=event.seq if found.is_best else None,
    )


def _rejected(checkpoint: Checkpoint, event: Event[CheckpointRejected]) -> Checkpoint:
    found = event.payload
    return newest(
        checkpoint,
        "rejected_seq",
        event,
        manifest_key=found.manifest_key,
        rejected_reason=found.reason.value,
        rejected_detail=found.detail,
    )


def _deleted(checkpoint: Checkpoint, event: Event[CheckpointDeleted]) -> Checkpoint:
    reason = event.payload.reason
    at = event.occurred_at
    return newest(checkpoint, "deleted_seq", event, deleted_at=at, deleted_reason=reason)


def _pinned(checkpoint: Checkpoint, _event: Event[CheckpointPinned]) -> Checkpoint:
    return replace(checkpoint, is_pinned=True)


def _restored(checkpoint: Checkpoint, event: Event[CheckpointRestored]) -> Checkpoint:
    attempt = max(checkpoint.restored_by_attempt or 0, event.payload.resumed_by_attempt)
    return replace(checkpoint, restored_by_attempt=attempt)


def _new(event: Event[Any]) -> Checkpoint:
    found = event.payload
    return Checkpoint(
        checkpoint_id=found.checkpoint_id,
        tenant_id=found.tenant_id,
        job_id=found.job_id,
        run_id=found.run_id,
        attempt=found.attempt,
        fence=found.fence,
        step=found.step,
    )


CHECKPOINTS = Noun(
    table="checkpoints",
    view=Checkpoint,
    key=("checkpoint_id",),
    key_of=by("checkpoint_id"),
    new=_new,
    rules={
        CheckpointCommitted: _committed,
        CheckpointRejected: _rejected,
        CheckpointDeleted: _deleted,
        CheckpointPinned: _pinned,
        CheckpointRestored: _restored,
    },
)
