"""Checkpoints: saved training state, the manifest that completes it, and its history."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import FailFast, Field, StringConstraints

from drivetrain_schemas.base import Payload, UtcTime, Value, event
from drivetrain_schemas.ids import CheckpointId, JobId, RunId, TenantId
from drivetrain_schemas.job_files import FilesSummary
from drivetrain_schemas.specs import LastValues
from drivetrain_schemas.text import AS_PRINTED
from drivetrain_schemas.topics import COMMANDS_JOBS, EVENTS_CHECKPOINTS, REPORTS
from drivetrain_schemas.units import Attempt, Bytes, Fence, Ordinal, Rank, Seconds, Step

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# Relative to the object store's root; no empty or dotted part, so it cannot leave its prefix.
Key = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"),
]


class Shard(Value):
    """One file of a checkpoint, relative to the manifest's directory."""

    key: Key
    size_bytes: Bytes
    sha256: Sha256
    rank: Rank


class Manifest(Value):
    """`manifest.json`, written last: a checkpoint is complete when it is there and verifies."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    job_id: JobId
    run_id: RunId
    tenant_id: TenantId
    attempt: Attempt
    fence: Fence
    step: Step
    epoch: Ordinal = 0
    world_size: Annotated[int, Field(ge=1, le=100_000)]
    shards: Annotated[tuple[Shard, ...], FailFast(), Field(min_length=1)]
    metrics: LastValues = {}
    files: FilesSummary | None = None  # of the job's files, which `files.json` lists
    blocked_seconds: Seconds | None = None  # for how long this save stopped training
    written_at: UtcTime


Detail = Annotated[str, StringConstraints(max_length=512), AS_PRINTED]


class RejectedReason(StrEnum):
    MANIFEST_UNREADABLE = "manifest_unreadable"
    SHARD_MISSING = "shard_missing"
    SIZE_DIFFERS = "size_differs"
    HASH_DIFFERS = "hash_differs"
    STALE_FENCE = "stale_fence"


class SaveFailure(StrEnum):
    """Why a run has no new checkpoint."""

    STORE_UNAVAILABLE = "store_unavailable"
    STORE_READ_ONLY = "store_read_only"
    STORE_FULL = "store_full"
    STORE_ERROR = "store_error"
    RANK_MISSING = "rank_missing"  # a rank did not write its part in time
    OVERDUE = "overdue"  # one is due by the job's policy, and none has arrived
    OTHER = "other"


class _OfCheckpoint(Payload):
    checkpoint_id: CheckpointId
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    step: Step


@event("checkpoint.committed", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointCommitted(_OfCheckpoint):
    """Complete and verified: training can be resumed from it. `manifest_key` is in the store.

    `verified_by`: its bytes were read, or so far only the size of each shard was compared.
    `blocked_seconds`: for how long the save stopped training, as its run says.
    """

    manifest_key: Key
    size_bytes: Bytes
    num_shards: int
    epoch: Ordinal
    metrics: LastValues
    is_latest: bool
    is_best: bool
    files: FilesSummary | None = None
    blocked_seconds: Seconds | None = None
    verified_by: Literal["read", "size"] = "read"


@event("checkpoint.rejected", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointRejected(_OfCheckpoint):
    """It failed verification (or a newer run has started): it will not be used."""

    manifest_key: Key
    reason: RejectedReason
    detail: str


@event("checkpoint.restored", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointRestored(_OfCheckpoint):
    """A run resumed from this checkpoint. `rejected`: newer ones that did not verify.

    At most 20 are listed; `num_rejected_omitted` counts the others.
    """

    resumed_by_run_id: RunId
    resumed_by_attempt: Attempt
    load_seconds: Seconds
    rejected: tuple[str, ...] = ()
    num_rejected_omitted: Ordinal = 0


@event("checkpoint.deleted", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointDeleted(_OfCheckpoint):
    """Retention removed it."""

    size_bytes: Bytes
    reason: str


@event("checkpoint.pinned", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointPinned(_OfCheckpoint):
    """Retention will not remove it."""


@event("checkpoint.pin", topic=COMMANDS_JOBS, producer="any")
class CheckpointPin(Payload):
    """Keep this checkpoint regardless of retention."""

    job_id: JobId
    checkpoint_id: CheckpointId


@event("checkpoint.pin_rejected", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointPinRejected(Payload):
    """The checkpoint does not exist, or was deleted."""

    job_id: JobId
    checkpoint_id: CheckpointId
    command_event_id: str
    detail: str


@event("checkpoint.written", topic=REPORTS, producer="pod")
class CheckpointWritten(Payload):
    """Rank 0 wrote this manifest: a hint to verify it now."""

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    step: Step
    manifest_key: Key
    save_seconds: Seconds
    blocked_seconds: Seconds


@event("checkpoint.write_failed", topic=REPORTS, producer="pod")
class CheckpointWriteFailed(Payload):
    """A rank could not save its part of the checkpoint of this step; training continues."""

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    step: Step
    reason: SaveFailure
    detail: Detail


class _OfSaving(Payload):
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence


@event("checkpointing.failed", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointingFailed(_OfSaving):
    """The run continues without new checkpoints: a failure would cause more steps to be repeated.

    It holds until `checkpointing.recovered` or the end of the run. `last_step` is that of the
    job's newest good checkpoint, `failed_step` that of the save which failed.
    """

    reason: SaveFailure
    detail: Detail
    last_step: Step | None = None
    failed_step: Step | None = None


@event("checkpointing.recovered", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointingRecovered(_OfSaving):
    """The run has a new checkpoint again, of this step."""

    step: Step


@event("checkpointing.went_back", topic=EVENTS_CHECKPOINTS, producer="checkpoints")
class CheckpointingWentBack(_OfSaving):
    """The run's first checkpoint is of an earlier step than a good one of an earlier run.

    The run did not resume from that one, so steps are repeated. The next run resumes from this
    run's checkpoints, because the newest run comes first; the further one is kept until then.
    """

    step: Step
    further_checkpoint_id: CheckpointId
    further_step: Step


@event("run.resumed", topic=REPORTS, producer="pod")
class RunResumed(Payload):
    """Rank 0 restored this manifest; `rejected` are the newer manifests that did not verify."""

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    step: Step
    manifest_key: Key | None = None
    load_seconds: Seconds
    rejected: tuple[str, ...] = ()
