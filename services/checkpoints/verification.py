"""Is this checkpoint complete and undamaged? Read from the object store, piece by piece.

A verdict is a value: the manifest, or what is wrong with it. A store that does not answer is no
verdict; it raises what the store raises, and the caller asks again later.
"""

import asyncio
import hashlib
from dataclasses import dataclass

from pydantic import ValidationError

from drivetrain_schemas import strict_json
from drivetrain_schemas.checkpoint_names import MANIFEST
from drivetrain_schemas.checkpoints import Manifest, RejectedReason, Shard
from drivetrain_schemas.ids import run_id_for
from services.checkpoints.core.location import Location
from services.runtime.object_store import NoSuchObject, ObjectStore

MAX_MANIFEST_BYTES = 16 * 2**20
# Above this a piece is hashed beside the event loop, which hashlib's C code leaves free.
HASH_ASIDE_BYTES = 64 * 1024
MAX_COUNT = 2**53


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a checkpoint cannot be used."""

    reason: RejectedReason
    detail: str


async def verify(
    object_store: ObjectStore, tenant_id: str, job_id: str, location: Location
) -> Manifest | Flaw:
    """Every shard is there with its size and SHA-256, and the manifest says what its key says."""
    manifest = await _manifest(object_store, location)
    if isinstance(manifest, Flaw):
        return manifest
    flaw = _contradiction(manifest, tenant_id, job_id, location)
    if flaw is not None:
        return flaw
    for shard in manifest.shards:
        flaw = await _flaw_of(object_store, location, shard)
        if flaw is not None:
            return flaw
    return manifest


async def _manifest(object_store: ObjectStore, location: Location) -> Manifest | Flaw:
    try:
        size_bytes = await object_store.size(location.manifest_key)
        if size_bytes > MAX_MANIFEST_BYTES:
            return _unreadable(f"{size_bytes} bytes (at most {MAX_MANIFEST_BYTES})")
        text = await object_store.get(location.manifest_key)
    except NoSuchObject:
        return _unreadable("it does not exist")
    try:
        return Manifest.model_validate(strict_json.loads(text))
    except strict_json.InvalidJson as error:
        return _unreadable(str(error))
    except ValidationError as error:
        first = error.errors()[0]
        return _unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _contradiction(
    manifest: Manifest, tenant_id: str, job_id: str, location: Location
) -> Flaw | None:
    """A manifest may speak only of its own place, its own job and files of its own directory."""
    said = (manifest.tenant_id, manifest.job_id, manifest.fence, manifest.step)
    if said != (tenant_id, job_id, location.fence, location.step):
        return _unreadable("tenant, job, fence or step differ from those of its key")
    if manifest.run_id != run_id_for(job_id, manifest.attempt):
        return _unreadable("run and attempt differ")
    keys = [shard.key for shard in manifest.shards]
    if len(set(keys)) != len(keys) or MANIFEST in keys:
        return _unreadable("a shard is named twice, or is the manifest")
    if any(shard.rank >= manifest.world_size for shard in manifest.shards):
        return _unreadable("a shard is of a rank that the run does not have")
    if max(manifest.epoch, manifest.world_size, _size_bytes(manifest)) > MAX_COUNT:
        return _unreadable("a number is too large")
    return None


async def _flaw_of(object_store: ObjectStore, location: Location, shard: Shard) -> Flaw | None:
    key = location.directory + shard.key
    digest = hashlib.sha256()
    num_bytes = 0
    try:
        found_bytes = await object_store.size(key)
        if found_bytes != shard.size_bytes:
            detail = f"{shard.key}: {found_bytes} bytes instead of {shard.size_bytes}"
            return Flaw(RejectedReason.SIZE_DIFFERS, detail)
        async for piece in object_store.stream(key):
            num_bytes += len(piece)
            if len(piece) > HASH_ASIDE_BYTES:
                await asyncio.to_thread(digest.update, piece)
            else:
                digest.update(piece)
    except NoSuchObject:
        return Flaw(RejectedReason.SHARD_MISSING, f"{shard.key} does not exist")
    if num_bytes != shard.size_bytes:
        detail = f"{shard.key}: {num_bytes} bytes instead of {shard.size_bytes}"
        return Flaw(RejectedReason.SIZE_DIFFERS, detail)
    if digest.hexdigest() != shard.sha256:
        return Flaw(RejectedReason.HASH_DIFFERS, f"{shard.key} has another SHA-256")
    return None


def _size_bytes(manifest: Manifest) -> int:
    return sum(shard.size_bytes for shard in manifest.shards)


def _unreadable(detail: str) -> Flaw:
    return Flaw(RejectedReason.MANIFEST_UNREADABLE, f"manifest: {detail}"[:512])
