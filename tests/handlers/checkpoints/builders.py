"""Checkpoints as a run writes them, and the events around them, with valid defaults."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, SlotRef
from drivetrain_schemas.checkpoints import CheckpointWritten, Manifest, RunResumed, Shard
from drivetrain_schemas.ids import allocation_id_for, checkpoint_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec
from drivetrain_schemas.runs import RunFailed
from services.runtime.object_store import ObjectStore

JOB = "job_" + "c" * 26
PREFIX = f"checkpoints/default/{JOB}/"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def name_of(step: int, fence: int = 1, save: int = 1) -> str:
    return f"f{fence:012d}-s{step:012d}-{save:08x}"


def key_of(step: int, fence: int = 1, save: int = 1) -> str:
    return f"{PREFIX}{name_of(step, fence, save)}/manifest.json"


def id_of(step: int, fence: int = 1) -> str:
    return checkpoint_id_for(key_of(step, fence))


def shard_key(step: int, rank: int = 0, fence: int = 1) -> str:
    return f"{PREFIX}{name_of(step, fence)}/rank-{rank}.safetensors"


async def write_checkpoint(
    object_store: ObjectStore, step: int, *, fence: int = 1, changes: dict[str, Any] | None = None
) -> str:
    """Two shards, then the manifest, with `changes` to it. Returns its key."""
    shards = []
    for rank in range(2):
        content = f"weights of rank {rank} at step {step} under fence {fence}".encode() * 100
        await object_store.put(shard_key(step, rank, fence), content)
        shards.append(
            Shard(
                key=f"rank-{rank}.safetensors",
                size_bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                rank=rank,
            )
        )
    values: dict[str, Any] = {
        "job_id": JOB,
        "run_id": run_id_for(JOB, fence),
        "tenant_id": "default",
        "attempt": fence,
        "fence": fence,
        "step": step,
        "world_size": 2,
        "shards": tuple(shards),
        "written_at": AT,
    }
    manifest = Manifest(**values)
    document = json.loads(manifest.model_dump_json()) | (changes or {})
    await object_store.put(key_of(step, fence), json.dumps(document).encode())
    return key_of(step, fence)


def make_queued(**fields: Any) -> JobQueued:
    kept = {"keep_last": 3, "keep_best": 1} | fields.pop("checkpoint", {})
    document: dict[str, Any] = {"name": "digits", "command": ["digits"], "checkpoint": kept}
    spec = JobSpec.model_validate(document | fields)
    return JobQueued(job_id=JOB, request_id="r1", spec=spec, queued_at=AT)


def make_granted(fence: int = 1) -> AllocationGranted:
    """The attempt's number is the fence's, for simplicity."""
    return AllocationGranted(
        job_id=JOB,
        run_id=run_id_for(JOB, fence),
        attempt=fence,
        fence=fence,
        allocation_id=allocation_id_for(JOB, fence),
        tenant_id="default",
        pool="default",
        device_type="cpu",
        slots=(SlotRef(node_id="n1", slot=0),),
        granted_at=AT,
    )


def make_failed(fence: int = 1) -> RunFailed:
    return RunFailed(
        job_id=JOB,
        run_id=run_id_for(JOB, fence),
        attempt=fence,
        fence=fence,
        exit_code=1,
        last_log="",
        ended_at=AT,
    )


def make_written(step: int, *, fence: int = 1, **fields: Any) -> CheckpointWritten:
    values: dict[str, Any] = {
        "tenant_id": "default",
        "job_id": JOB,
        "run_id": run_id_for(JOB, fence),
        "attempt": fence,
        "fence": fence,
        "step": step,
        "manifest_key": key_of(step, fence),
        "save_seconds": 0.1,
        "blocked_seconds": 0.01,
    }
    return CheckpointWritten(**(values | fields))


def make_resumed(
    manifest_key: str | None, *, fence: int = 2, rejected: tuple[str, ...] = ()
) -> RunResumed:
    return RunResumed(
        tenant_id="default",
        job_id=JOB,
        run_id=run_id_for(JOB, fence),
        attempt=fence,
        fence=fence,
        step=0,
        manifest_key=manifest_key,
        load_seconds=0.5,
        rejected=rejected,
    )
