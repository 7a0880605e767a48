"""Which checkpoint a run resumes from, and what each rank reads of it.

The newest one whose every byte verifies is chosen, by rank 0. Shards are read in pieces that are
hashed as they pass, and each tensor is filled in place.
"""

import json
import logging
import time
from dataclasses import dataclass, replace

from drivetrain import manifests, tensor_files
from drivetrain.errors import CheckpointMismatch, StorageError
from drivetrain.hashing import Hashed
from drivetrain.held_state import Stored
from drivetrain.storage import Storage
from drivetrain_schemas.checkpoint_names import MANIFEST
from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.specs import NEWEST

_STORE_WAIT_SECONDS = 60.0
_NUM_LOOKS = 3
_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class Choice:
    """The directory and manifest to resume from, or none; `rejected`: newer ones with a flaw."""

    directory: str
    manifest: Manifest | None
    rejected: tuple[str, ...]
    is_start: bool = False  # of the job that this one was forked from


def choose(storage: Storage) -> Choice:
    """The newest undamaged checkpoint.

    A store that does not answer must not look like one that holds nothing, so this retries for
    a while, and then the run fails.
    """
    deadline = time.monotonic() + _STORE_WAIT_SECONDS
    pause = 0.2
    while True:
        try:
            return _look_for_newest(storage)
        except StorageError as error:
            if time.monotonic() + pause > deadline:
                raise
            _logger.warning("looking for checkpoints: %s", error)
        time.sleep(pause)
        pause = min(2 * pause, 5.0)


def _look_for_newest(storage: Storage) -> Choice:
    rejected: list[str] = []
    for name in (one.name for one in manifests.newest_first(storage.list())):
        manifest = manifests.read_manifest(storage.get(f"{name}/{MANIFEST}"))
        flaw = manifests.first_flaw(
            manifest,
            lambda key, name=name: storage.get_pieces(f"{name}/{key}"),  # type: ignore[misc]
        )
        if flaw is None:
            return Choice(name, manifest, tuple(rejected))
        _logger.warning("checkpoint %s is not used: %s", name, flaw)
        rejected.append(f"{name}: {flaw}")
    return Choice("", None, tuple(rejected))


def choose_start(storage: Storage, name: str) -> Choice:
    """The checkpoint that a job starts from, in the storage of the job that wrote it.

    Raises CheckpointMismatch if it cannot be used: to train from the beginning is not meant.
    """
    if name == NEWEST:
        return _choose_newest_start(storage)
    manifest = manifests.read_manifest(storage.get(f"{name}/{MANIFEST}"))
    flaw = manifests.first_flaw(manifest, lambda key: storage.get_pieces(f"{name}/{key}"))
    if flaw is not None:
        raise CheckpointMismatch(f"start_from: the checkpoint {name} cannot be used: {flaw}")
    return Choice(name, manifest, (), is_start=True)


def _choose_newest_start(storage: Storage) -> Choice:
    """Raises StorageError where there is none: its job may save one later, so a retry may help."""
    # That job may also delete what was just listed: there are others the next time.
    for _ in range(_NUM_LOOKS):
        choice = choose(storage)
        if choice.manifest is not None:
            return replace(choice, is_start=True)
    flaws = "; ".join(choice.rejected)[:500] or "it has none"
    raise StorageError(f"start_from: no checkpoint of that job can be used: {flaws}")


def read_rank(storage: Storage, directory: str, manifest: Manifest, rank: int) -> Stored:
    """What this rank has stored. Raises StorageError if it changed since it was chosen."""
    shards = {shard.key: shard for shard in manifest.shards if shard.rank == rank}
    document = b""
    tensors: tensor_files.Tensors = {}
    for key, shard in shards.items():
        if key not in (f"rank-{rank}.safetensors", f"rank-{rank}.json"):
            continue  # of the job's files, which are put back by then
        place = f"{directory}/{key}"
        pieces = storage.get_pieces(place)
        if pieces is None:
            raise StorageError(f"{place}: it is missing since it was chosen")
        hashed = Hashed(pieces)
        if key.endswith(".safetensors"):
            tensors = tensor_files.read(hashed)
        else:
            document = b"".join(hashed)
        if flaw := manifests.difference(shard, hashed):
            raise StorageError(f"{place}: {flaw.value} since it was chosen")
    return Stored(json.loads(document), tensors)
