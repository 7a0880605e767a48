"""Which checkpoints an object store contains, and whether one is complete and undamaged.

A directory without `manifest.json` is an unfinished save and is ignored.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from drivetrain.hashing import Hashed, sha256
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


def read_manifest(data: bytes | None) -> Manifest | None:
    try:
        return None if data is None else Manifest.model_validate_json(data)
    except ValidationError:
        return None


def flaw_of(shard: Shard, pieces: Iterable[bytes] | None) -> RejectedReason | None:
    """Why these bytes do not match that shard; None if they do. Reads to the end."""
    if pieces is None:
        return RejectedReason.SHARD_MISSING
    return difference(shard, _read_through(pieces))


def hash_of(pieces: Iterable[Any]) -> str:
    return _read_through(pieces).sha256


def difference(shard: Shard, hashed: Hashed) -> RejectedReason | None:
    """Why the bytes that were read do not match that shard; None if they do."""
    if hashed.num_bytes != shard.size_bytes:
        return RejectedReason.SIZE_DIFFERS
    return RejectedReason.HASH_DIFFERS if hashed.sha256 != shard.sha256 else None


def first_flaw(
    manifest: Manifest | None, read: Callable[[str], Iterable[bytes] | None]
) -> str | None:
    """Why a checkpoint cannot be used, read shard by shard; None if it is undamaged."""
    if manifest is None:
        return RejectedReason.MANIFEST_UNREADABLE.value
    for shard in manifest.shards:
        flaw = flaw_of(shard, read(shard.key))
        if flaw is not None:
            return f"{flaw.value} {shard.key}"
    return None


def _read_through(pieces: Iterable[Any]) -> Hashed:
    hashed = Hashed(pieces)
    for _ in hashed:
        continue
    return hashed
