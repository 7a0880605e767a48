"""How checkpoints are named, which is the newest, and whether one is sound.

A checkpoint is the directory `f<fence>-s<step>-<8 hex>`; names sort as checkpoints follow each
other. The last part is the number of the save within its session and four digits that differ
between sessions, so no directory is ever written twice. A directory without `manifest.json` is an
unfinished save and does not count.
"""

import hashlib
import re
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from drivetrain_schemas.checkpoints import Manifest, RejectedReason, Shard

MANIFEST = "manifest.json"
_NAME = re.compile(r"(f\d{12}-s\d{12}-[0-9a-f]{8})/manifest\.json")


def directory_name(fence: int, step: int, save_number: int, nonce: int) -> str:
    return f"f{fence:012d}-s{step:012d}-{save_number & 0xFFFF:04x}{nonce & 0xFFFF:04x}"


def newest_first(keys: Iterable[str]) -> list[str]:
    """The directories of all complete checkpoints among these keys: highest fence, then step."""
    found = (_NAME.fullmatch(key) for key in keys)
    return sorted((match[1] for match in found if match), reverse=True)


def highest_fence(keys: Iterable[str]) -> int:
    return max((int(name[1:13]) for name in newest_first(keys)), default=0)


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
    """Why these bytes are not that shard; None if they are."""
    if data is None:
        return RejectedReason.SHARD_MISSING
    if len(data) != shard.size_bytes:
        return RejectedReason.SIZE_DIFFERS
    if sha256(data) != shard.sha256:
        return RejectedReason.HASH_DIFFERS
    return None


def first_flaw(manifest: Manifest | None, read: Callable[[str], bytes | None]) -> str | None:
    """Why a checkpoint cannot be used, read shard by shard; None if it is sound."""
    if manifest is None:
        return RejectedReason.MANIFEST_UNREADABLE.value
    for shard in manifest.shards:
        flaw = flaw_of(shard, read(shard.key))
        if flaw is not None:
            return f"{flaw.value} {shard.key}"
    return None
