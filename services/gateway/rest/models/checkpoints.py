"""Checkpoints of a job, and the shards of one."""

from datetime import datetime

from pydantic import BaseModel


class Checkpoint(BaseModel):
    """`state` is committed, rejected or deleted."""

    checkpoint_id: str
    job_id: str
    run_id: str
    attempt: int
    step: int
    epoch: int | None
    state: str
    is_latest: bool
    is_best: bool
    is_pinned: bool
    size_bytes: int | None
    num_shards: int | None
    metrics: dict[str, float]
    manifest_key: str | None
    committed_at: datetime | None
    detail: str | None
    restored_by_attempt: int | None


class CheckpointList(BaseModel):
    checkpoints: list[Checkpoint]


class Shard(BaseModel):
    key: str
    size_bytes: int
    sha256: str
    rank: int


class ShardList(BaseModel):
    checkpoint_id: str
    job_id: str
    step: int
    shards: list[Shard]
