"""A checkpoint as it is shown: committed, rejected, deleted, pinned, restored."""

from dataclasses import dataclass
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
from services.gateway.core.noun import NEVER, Noun, changed, given, newest


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
    facts = given(event, "manifest_key", "epoch", "size_bytes", "num_shards", "metrics")
    best_seq = event.seq if event.payload.is_best else None
    at = event.occurred_at
    return newest(checkpoint, "committed_seq", event, committed_at=at, best_seq=best_seq, **facts)


def _rejected(checkpoint: Checkpoint, event: Event[CheckpointRejected]) -> Checkpoint:
    facts = given(event, "manifest_key", rejected_reason="reason", rejected_detail="detail")
    return newest(checkpoint, "rejected_seq", event, **facts)


def _deleted(checkpoint: Checkpoint, event: Event[CheckpointDeleted]) -> Checkpoint:
    facts = given(event, deleted_reason="reason")
    return newest(checkpoint, "deleted_seq", event, deleted_at=event.occurred_at, **facts)


def _pinned(checkpoint: Checkpoint, _event: Event[CheckpointPinned]) -> Checkpoint:
    return changed(checkpoint, is_pinned=True)


def _restored(checkpoint: Checkpoint, event: Event[CheckpointRestored]) -> Checkpoint:
    attempt = max(checkpoint.restored_by_attempt or 0, event.payload.resumed_by_attempt)
    return changed(checkpoint, restored_by_attempt=attempt)


CHECKPOINTS = Noun(
    table="checkpoints",
    view=Checkpoint,
    key=("checkpoint_id",),
    rules={
        CheckpointCommitted: _committed,
        CheckpointRejected: _rejected,
        CheckpointDeleted: _deleted,
        CheckpointPinned: _pinned,
        CheckpointRestored: _restored,
    },
)
