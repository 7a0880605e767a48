"""Which checkpoints an object store contains, and whether one is complete and undamaged.

A directory without `manifest.json` is an unfinished save and is ignored.
"""

import hashlib
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from drivetrain_schemas.checkpoint_names import (
    MANIFEST,
    CheckpointOrder,
    never_deleted,
    parse_name,
)
from drivetrain_schemas.checkpoints import Manifest, RejectedReason, Shard


def newest_first(keys: Iterable[str]) -> list[CheckpointOrder]:
    """All complete checkpoints among these keys: highest fence, then step."""
    names = (key.removesuffix(f"/{MANIFEST}") for key in keys if key.endswith(f"/{MANIFEST}"))
    return sorted((order for name in names if (order := parse_name(name))), reverse=True)


def highest_fence(keys: Iterable[str]) -> int:
    return max((one.fence for one in newest_first(keys)), default=0)


def expendable(keys: Iterable[str], keep_last: int) -> list[str]:
    """The directories that a local run does not keep (docs/architecture.md, rule 9)."""
    order = newest_first(keys)
    kept = never_deleted(order) | set(order[:keep_last])
    return [one.name for one in order if one not in kept]


def make_shard(key: str, data: bytes, rank: int) -> Shard:
    return Shard(key=key, size_bytes=len(data), sha256=sha256(data), rank=rank)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_manifest(data: bytes | None) -> Manifest | None:
    try:
        return None if data is None else Manifest.model_validate_json(data)
    except ValidationError:
        return None


def flaw_of(shard: Shard, data: bytes | None) -> RejectedReason | None:
    """Why these bytes do not match that shard; None if they do."""
    if data is None:
        return RejectedReason.SHARD_MISSING
    if len(data) != shard.size_bytes:
        return RejectedReason.SIZE_DIFFERS
    if sha256(data) != shard.sha256:
        return RejectedReason.HASH_DIFFERS
    return None


def first_flaw(manifest: Manifest | None, read: Callable[[str], bytes | None]) -> str | None:
    """Why a checkpoint cannot be used, read shard by shard; None if it is undamaged."""
    if manifest is None:
        return RejectedReason.MANIFEST_UNREADABLE.value
    for shard in manifest.shards:
        flaw = flaw_of(shard, read(shard.key))
        if flaw is not None:
            return f"{flaw.value} {shard.key}"
    return None
