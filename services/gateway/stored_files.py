"""What pods have stored, for people: the files of a job, and the shards of a checkpoint.

Read from the object store when somebody asks; nothing here decides anything. Keys are made from the
ids of the caller's own job and from names that a list or a manifest holds. Every part of a file is
verified before its first byte is sent, and a shard, which may be large, before its last.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from drivetrain_schemas import strict_json
from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.job_files import (
    LIST,
    MAX_LIST_BYTES,
    PACK_BYTES,
    PART_BYTES,
    FileList,
    JobFile,
    blob_key,
    files_directory,
    newest_lists_first,
)
from services.runtime.object_store import NoSuchObject, ObjectStore

# A program of the job may write any number of lists that cannot be read.
MAX_LISTS_READ = 3
MAX_MANIFEST_BYTES = 16 * 1024**2
# Of the lists that are kept in memory, as they are stored; read, each takes several times that.
MAX_KEPT_BYTES = 16 * 1024**2
D = TypeVar("D", bound=BaseModel)


class Gone(Exception):
    """It was deleted, or is not what its name says."""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The files of one moment; of a checkpoint where one is named."""

    files: FileList
    checkpoint_id: str | None = None


@dataclass(slots=True)
class KeptLists:
    """The lists whose files were sent last, by key: a list is written once, and read for each file.

    Only for content, which is verified whatever its list says; a list that is shown is read again.
    """

    _by_key: OrderedDict[str, tuple[FileList, int]] = field(default_factory=OrderedDict)

    def get(self, key: str) -> FileList | None:
        if key not in self._by_key:
            return None
        self._by_key.move_to_end(key)
        return self._by_key[key][0]

    def keep(self, key: str, files: FileList, size_bytes: int) -> None:
        self._by_key[key] = files, size_bytes
        while sum(size for _, size in self._by_key.values()) > MAX_KEPT_BYTES:
            self._by_key.popitem(last=False)


async def newest(
    store: ObjectStore,
    tenant_id: str,
    job_id: str,
    checkpoints: Sequence[dict[str, Any]],
    kept: KeptLists | None = None,
    *,
    attempt: int | None = None,
) -> StoredFiles | None:
    """`checkpoints`: the usable ones of the job or attempt, newest first. None where nothing is
    stored.

    The last list of a run may be newer than its last checkpoint.
    """
    prefix = f"{files_directory(tenant_id, job_id)}/"
    found = await store.list(f"{prefix}lists/")
    of_run = None
    orders = newest_lists_first(item.key.removeprefix(prefix) for item in found)
    for order in orders[:MAX_LISTS_READ]:
        found_list = await _list(store, prefix + order.name, kept)
        if found_list is not None and attempt in (None, found_list.attempt):
            of_run = found_list
            break
    for row in checkpoints:
        of_checkpoint = await at_checkpoint(store, row, kept)
        if of_checkpoint is not None:
            is_newer = of_run is None or _order(of_checkpoint.files) > _order(of_run)
            return of_checkpoint if is_newer or of_run is None else StoredFiles(of_run)
    return None if of_run is None else StoredFiles(of_run)


async def at_checkpoint(
    store: ObjectStore, row: dict[str, Any], kept: KeptLists | None = None
) -> StoredFiles | None:
    """The files that were saved with this checkpoint; None where there are none."""
    directory = row["manifest_key"].rpartition("/")[0]
    files = await _list(store, f"{directory}/{LIST}", kept)
    return None if files is None else StoredFiles(files, row["checkpoint_id"])


async def manifest_of(store: ObjectStore, row: dict[str, Any]) -> Manifest:
    """Raises Gone."""
    manifest = await _read(store, row["manifest_key"], Manifest, MAX_MANIFEST_BYTES)
    if manifest is None:
        raise Gone(f"the checkpoint {row['checkpoint_id']} is no longer stored")
    return manifest


async def parts_of(
    store: ObjectStore, tenant_id: str, job_id: str, files: Sequence[JobFile]
) -> AsyncIterator[bytes]:
    """The contents of files, one after another; a blob that they share is read once.

    Raises Gone, before or between their parts.
    """
    prefix = f"{files_directory(tenant_id, job_id)}/"
    shared: dict[str, bytes | None] = {}
    for file in files:
        if file.packed is None:
            async for part in _parts(store, prefix, file):
                yield part
            continue
        blob, end = file.packed.blob, file.packed.offset + file.size_bytes
        if blob not in shared:
            shared = {blob: await _read_bounded(store, prefix + blob_key(blob), PACK_BYTES)}
        content = (shared[blob] or b"")[file.packed.offset : end]
        if _sha256(content) != file.sha256:
            raise Gone(f"the content of {file.path} is no longer stored")
        yield content


async def _parts(store: ObjectStore, prefix: str, file: JobFile) -> AsyncIterator[bytes]:
    left = file.size_bytes
    for name in file.parts:
        data = await _read_bounded(store, prefix + blob_key(name), PART_BYTES)
        if data is None or await asyncio.to_thread(_sha256, data) != name[:64]:
            raise Gone(f"the content of {file.path} is no longer stored")
        if len(data) != min(left, PART_BYTES):
            raise Gone(f"the list of files gives {file.path} another size than it has")
        left -= len(data)
        yield data
    if left:
        raise Gone(f"the list of files gives {file.path} another size than it has")


async def verified(
    pieces: AsyncIterator[bytes], size_bytes: int, sha256: str
) -> AsyncIterator[bytes]:
    """These pieces, if they are what the catalogue names; else Gone before the last of them."""
    digest, num_bytes, held = hashlib.sha256(), 0, b""
    async for piece in pieces:
        num_bytes += len(piece)
        if num_bytes > size_bytes:
            raise Gone("what is stored is larger than the catalogue says")
        await asyncio.to_thread(digest.update, piece)
        if held:
            yield held
        held = piece
    if num_bytes != size_bytes or digest.hexdigest() != sha256:
        raise Gone("what is stored is not what the catalogue says")
    yield held


def _order(files: FileList) -> tuple[int, Any]:
    """Of one fence, both were written by the same machine."""
    return files.fence, files.saved_at


async def _list(store: ObjectStore, key: str, kept: KeptLists | None) -> FileList | None:
    if kept is not None and (found := kept.get(key)):
        return found
    content = await _read_bounded(store, key, MAX_LIST_BYTES)
    files = None if content is None else await _parsed(content, FileList)
    if kept is not None and content is not None and files is not None:
        kept.keep(key, files, len(content))
    return files


async def _read(store: ObjectStore, key: str, kind: type[D], max_bytes: int) -> D | None:
    content = await _read_bounded(store, key, max_bytes)
    return None if content is None else await _parsed(content, kind)


async def _parsed(content: bytes, kind: type[D]) -> D | None:
    try:
        strict_json.check_number(content)
        return await asyncio.to_thread(kind.model_validate_json, content)
    except ValueError:
        return None


async def _read_bounded(store: ObjectStore, key: str, max_bytes: int) -> bytes | None:
    """None where it does not exist or is too large: programs of a job can write anything here."""
    content = bytearray()
    try:
        async for piece in store.stream(key):
            content += piece
            if len(content) > max_bytes:
                return None
    except NoSuchObject:
        return None
    return bytes(content)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
