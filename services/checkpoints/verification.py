"""Is this checkpoint complete and undamaged? First its manifest and sizes, then its bytes.

A verdict is a value: the manifest, or what is wrong with it. A store that does not answer gives no
verdict: its error is raised, and the caller tries again later.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import ValidationError

from drivetrain_schemas import strict_json
from drivetrain_schemas.checkpoint_names import MANIFEST
from drivetrain_schemas.checkpoints import Manifest, RejectedReason, Shard
from drivetrain_schemas.ids import run_id_for
from services.checkpoints.core.location import Location
from services.runtime.object_store import NoSuchObject, ObjectStore

MAX_MANIFEST_BYTES = 16 * 2**20
# Above this a piece is hashed in a thread: hashlib's C code releases the GIL.
HASH_ASIDE_BYTES = 64 * 1024
MAX_COUNT = 2**53


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a checkpoint cannot be used."""

    reason: RejectedReason
    detail: str


async def check(
    object_store: ObjectStore, tenant_id: str, job_id: str, location: Location
) -> Manifest | Flaw | None:
    """The manifest agrees with its key, and every shard exists with its size; None: no manifest."""
    manifest = await _manifest(object_store, location)
    if manifest is None or isinstance(manifest, Flaw):
        return manifest
    flaw = _contradiction(manifest, tenant_id, job_id, location)
    if flaw is not None:
        return flaw
    sizes = {item.key: item.size_bytes for item in await object_store.list(location.directory)}
    for shard in manifest.shards:
        found_bytes = sizes.get(location.directory + shard.key)
        if found_bytes is None:
            return Flaw(RejectedReason.SHARD_MISSING, f"{shard.key} does not exist")
        if found_bytes != shard.size_bytes:
            return _other_size(shard, found_bytes)
    return manifest


async def read_shard(
    object_store: ObjectStore,
    location: Location,
    shard: Shard,
    silence_seconds: float,
    pause: Callable[[int], Awaitable[None]],
) -> Flaw | None:
    """Compare the SHA-256 of the bytes. Only the time without a byte is limited.

    `pause` is awaited after each piece, with its number of bytes. Raises TimeoutError when the
    store is silent for too long.
    """
    digest = hashlib.sha256()
    num_bytes = 0
    pieces = object_store.stream(location.directory + shard.key)
    try:
        while True:
            async with asyncio.timeout(silence_seconds):
                piece = await anext(pieces, None)
            if piece is None:
                break
            num_bytes += len(piece)
            await pause(len(piece))
            if len(piece) > HASH_ASIDE_BYTES:
                await asyncio.to_thread(digest.update, piece)
            else:
                digest.update(piece)
    except NoSuchObject:
        return Flaw(RejectedReason.SHARD_MISSING, f"{shard.key} does not exist")
    if num_bytes != shard.size_bytes:
        return _other_size(shard, num_bytes)
    if digest.hexdigest() != shard.sha256:
        return Flaw(RejectedReason.HASH_DIFFERS, f"{shard.key} has another SHA-256")
    return None


async def _manifest(object_store: ObjectStore, location: Location) -> Manifest | Flaw | None:
    try:
        text = b""
        # Bounded as it is read: a program of the pod may put another file here at any time.
        async for piece in object_store.stream(location.manifest_key):
            text += piece
            if len(text) > MAX_MANIFEST_BYTES:
                return _unreadable(f"more than {MAX_MANIFEST_BYTES} bytes")
    except NoSuchObject:
        await object_store.list(location.directory)  # raises where absence cannot be known
        return None
    try:
        strict_json.check_number(text)
        return Manifest.model_validate(strict_json.loads(text))
    except strict_json.InvalidJson as error:
        return _unreadable(str(error))
    except ValidationError as error:
        first = error.errors()[0]
        return _unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _contradiction(
    manifest: Manifest, tenant_id: str, job_id: str, location: Location
) -> Flaw | None:
    """A manifest may name only its own directory, its own job and files of its own directory."""
    named = (manifest.tenant_id, manifest.job_id, manifest.fence, manifest.step)
    if named != (tenant_id, job_id, location.fence, location.step):
        return _unreadable("tenant, job, fence or step differ from those of its key")
    if manifest.run_id != run_id_for(job_id, manifest.attempt):
        return _unreadable("run and attempt differ")
    keys = [shard.key for shard in manifest.shards]
    if len(set(keys)) != len(keys) or MANIFEST in keys:
        return _unreadable("a shard is named twice, or is the manifest")
    if any(shard.rank >= manifest.world_size for shard in manifest.shards):
        return _unreadable("a shard is of a rank that the run does not have")
    if max(manifest.epoch, manifest.world_size, size_bytes(manifest.shards)) > MAX_COUNT:
        return _unreadable("a number is too large")
    return None


def size_bytes(shards: tuple[Shard, ...] | list[Shard]) -> int:
    return sum(shard.size_bytes for shard in shards)


def _other_size(shard: Shard, found_bytes: int) -> Flaw:
    detail = f"{shard.key}: {found_bytes} bytes instead of {shard.size_bytes}"
    return Flaw(RejectedReason.SIZE_DIFFERS, detail)


def _unreadable(detail: str) -> Flaw:
    return Flaw(RejectedReason.MANIFEST_UNREADABLE, f"manifest: {detail}"[:512])
