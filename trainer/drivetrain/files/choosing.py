"""Which files an attempt starts with: those of the checkpoint that it will resume from.

Without a checkpoint, the newest list that was saved for this (programs that save no checkpoints).
The rule for checkpoints is that of `checkpointing`: the highest fence, then the highest step. Here
only the presence of the shards is checked; a run that finds one damaged and falls back puts the
files back as of the checkpoint that it takes (`with_checkpoints`).
"""

from collections.abc import Callable
from contextlib import suppress

from drivetrain import manifests
from drivetrain.files.layout import Source
from drivetrain.storage import Storage
from drivetrain_schemas.checkpoint_names import MANIFEST
from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.job_files import (
    LIST,
    MAX_LIST_BYTES,
    FileList,
    ListOrder,
    newest_lists_first,
    parse_list_key,
)


def choose(checkpoints: Storage, files: Storage, fence: int) -> Source | None:
    """None where nothing was saved before the run with this fence. Raises StorageError.

    Not what this run saved: its pods start one after another, and all with the same files.
    """
    keys = checkpoints.list()
    present = set(keys)
    for order in manifests.newest_first(keys):
        if order.fence >= fence:
            continue
        manifest = manifests.read_manifest(checkpoints.get(f"{order.name}/{MANIFEST}"))
        if manifest is None:
            continue
        if all(f"{order.name}/{shard.key}" in present for shard in manifest.shards):
            source = of_checkpoint(checkpoints, order.name, manifest)
            if source is not None:
                return source
    return _newest_list(files, lambda order: order.fence < fence)


def before(files: Storage, source: Source) -> Source | None:
    """The newest list before this one, of what a run may start with. Raises StorageError."""
    own = parse_list_key(source.name)
    return None if own is None else _newest_list(files, lambda order: order < own)


def read_list(files: Storage, name: str) -> FileList | None:
    """None where it is gone or no list. Raises StorageError."""
    data = files.get(name, MAX_LIST_BYTES)
    with suppress(ValueError):
        return None if data is None else FileList.model_validate_json(data)
    return None


def of_checkpoint(checkpoints: Storage, name: str, manifest: Manifest) -> Source | None:
    """The files of a checkpoint; None where it has no list or not the one that it was saved with.

    Raises StorageError.
    """
    for shard in manifest.shards:
        if shard.key == LIST and manifest.files is not None:
            data = checkpoints.get(f"{name}/{LIST}", MAX_LIST_BYTES)
            if data is not None and manifests.flaw_of(shard, [data]) is None:
                with suppress(ValueError):  # of a program of the job, which can write anything
                    return Source(name, FileList.model_validate_json(data))
    return None


def _newest_list(files: Storage, is_meant: Callable[[ListOrder], bool]) -> Source | None:
    for order in filter(is_meant, newest_lists_first(files.list("lists/"))):
        found = read_list(files, order.name)
        if found is not None and found.is_resumable:
            return Source(order.name, found)
    return None
