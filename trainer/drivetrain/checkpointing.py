"""Saving and restoring the state of a run, all ranks together, without pickle.

A save stages a copy of everything that is restored (what the script named, random numbers, the
position in the data, best metric, samples not yet acknowledged) and writes it in the background.
Each rank writes its own shard; rank 0 waits for all of them in the store and writes the manifest
last. States that data parallelism keeps equal on all ranks are written by rank 0 alone. A save that
fails is logged and reported, and training goes on; only the final one must succeed.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from drivetrain import manifests, rng, tree
from drivetrain.environment import Environment
from drivetrain.errors import (
    CheckpointMismatch,
    CheckpointWriteFailed,
    RankMissing,
    StorageError,
)
from drivetrain.messages import CheckpointSaved, Resumed, SaveFailed
from drivetrain.parallel import World, unwrap
from drivetrain.reporting import Reporter
from drivetrain.storage import Storage
from drivetrain_schemas.checkpoint_names import MANIFEST, directory_name
from drivetrain_schemas.checkpoints import Manifest, SaveFailure, Shard

_SHARD_WAIT_SECONDS = 120.0
_STORE_WAIT_SECONDS = 60.0
_KEPT_LOCALLY = 3
_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class Moment:
    """The progress of a run: steps done, the current pass, batches of that pass consumed."""

    step: int = 0
    epoch: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """One rank's copy of its state, which training no longer changes."""

    number: int
    directory: str
    moment: Moment
    state: dict[str, Any]
    extras: dict[str, Any]  # changes without the training state changing
    metrics: dict[str, float]
    blocked_seconds: float
    tensors: tree.Tensors = field(repr=False)


class Checkpointer:
    """The checkpoints of one run, seen from one rank."""

    def __init__(
        self, environment: Environment, world: World, reporter: Reporter, storage: Storage
    ) -> None:
        self._environment = environment
        self._world = world
        self._reporter = reporter
        self._storage = storage
        self._nonce = int(world.share(time.time_ns() // 1000))
        self._things: dict[str, Any] = {}
        self._number = 0
        self._writer: threading.Thread | None = None
        # Step, digest and metrics of the last save.
        self._committed: tuple[int, str, dict[str, float]] | None = None
        self._reported: tuple[int, SaveFailure] | None = None
        self.failed_save = 0
        self.failed_save_anywhere = 0

    @property
    def holds_anything(self) -> bool:
        return bool(self._things)

    @property
    def is_saving(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def hold(self, things: Mapping[str, Any]) -> None:
        """Name what checkpoints hold. State that cannot be stored is refused before training."""
        for name, thing in things.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise TypeError(f"{name}: it has no state_dict and load_state_dict")
            self._things[name] = thing = unwrap(thing)
            if self._world.rank == 0 or not _is_replicated(thing):
                with suppress(ValueError):  # lazy modules have no shapes before their first batch
                    tree.encode(thing.state_dict(), name, {})

    def begin(self, moment: Moment) -> None:
        """Stage now, write in the background. No save may be going on."""
        staged = self._stage(moment)
        self._writer = threading.Thread(
            target=self._write_in_background, args=(staged,), name="drivetrain-save", daemon=True
        )
        self._writer.start()

    def finish(self, moment: Moment, seconds: float) -> None:
        """Write the final checkpoint and return when it is complete.

        Called by all ranks at the same step. Tried again until the time is over; raises
        CheckpointWriteFailed then.
        """
        deadline = time.monotonic() + seconds
        self._end_background_save(seconds)
        staged = self._stage(moment)
        digest = self._digest(staged, self._serialize(staged))
        if self._world.all_agree(self._committed == (moment.step, digest, staged.metrics)):
            return
        pause = 0.2
        while not self._commit_together(staged):
            if self._world.largest([int(time.monotonic() + pause > deadline)]) != [0]:
                raise CheckpointWriteFailed(
                    f"the checkpoint of step {moment.step} could not be written in {seconds:.0f} s"
                )
            time.sleep(pause)
            pause = min(2 * pause, 5.0)
            self._number += 1
            staged = replace(staged, number=self._number, directory=self._directory_of(moment.step))

    def restore(self) -> Moment | None:
        """Restore the newest undamaged checkpoint; None where there is none."""
        started = time.monotonic()
        choice = self._choose() if self._world.rank == 0 else None
        directory, text, rejected = self._world.share(choice)
        moment = None
        if text is not None:
            moment = self._load(directory, Manifest.model_validate_json(text))
        if self._world.rank == 0:
            self._report_resumed(directory, moment, time.monotonic() - started, rejected)
        return moment

    # Saving

    def _stage(self, moment: Moment) -> Staged:
        started = time.monotonic()
        self._number += 1
        tensors: tree.Tensors = {}
        state = {
            "step": moment.step,
            "epoch": moment.epoch,
            "batches": moment.batches,
            "rng": tree.encode(rng.get_state(), "rng", tensors),
            "things": {
                name: tree.encode(thing.state_dict(), name, tensors)
                for name, thing in self._things.items()
                if self._world.rank == 0 or not _is_replicated(thing)
            },
        }
        extras: dict[str, Any] = {}
        if self._world.rank == 0:
            extras["samples"] = self._reporter.unacknowledged()
            extras["standing"] = self._reporter.last_and_best.to_json()
        return Staged(
            number=self._number,
            directory=self._directory_of(moment.step),
            moment=moment,
            state=state,
            extras=extras,
            metrics=self._reporter.last_and_best.values_at(moment.step),
            blocked_seconds=time.monotonic() - started,
            tensors=tensors,
        )

    def _directory_of(self, step: int) -> str:
        return directory_name(self._environment.fence, step, self._number, self._nonce)

    def _serialize(self, staged: Staged) -> bytes:
        from safetensors.torch import save

        return save(staged.tensors)

    def _digest(self, staged: Staged, data: bytes) -> str:
        return manifests.sha256(data + json.dumps(staged.state).encode())

    def _write_shard(self, staged: Staged, data: bytes) -> tuple[Shard, Shard]:
        rank = self._world.rank
        tensors = manifests.make_shard(f"rank-{rank}.safetensors", data, rank)
        document = json.dumps(
            {
                "format": 1,
                "tensors": tensors.model_dump(),
                **staged.state,
                **staged.extras,
            }
        ).encode()
        try:
            self._storage.put(f"{staged.directory}/{tensors.key}", data)
            self._storage.put(f"{staged.directory}/rank-{rank}.json", document)
        except StorageError:
            with suppress(StorageError):  # a full store gets its space back
                self._storage.delete(f"{staged.directory}/{tensors.key}")
            raise
        return tensors, manifests.make_shard(f"rank-{rank}.json", document, rank)

    def _write_manifest(self, staged: Staged, own: tuple[Shard, Shard], started: float) -> None:
        shards = list(own)
        for rank in range(1, self._world.size):
            shards += self._wait_for_shard(staged, rank)
        environment = self._environment
        manifest = Manifest(
            job_id=environment.job_id,
            run_id=environment.run_id,
            tenant_id=environment.tenant_id,
            attempt=environment.attempt,
            fence=environment.fence,
            step=staged.moment.step,
            epoch=staged.moment.epoch,
            world_size=self._world.size,
            shards=tuple(shards),
            metrics=staged.metrics,
            written_at=datetime.now(UTC),
        )
        key = f"{staged.directory}/{MANIFEST}"
        if not self._storage.put_if_absent(key, manifest.model_dump_json().encode()):
            raise StorageError(f"{key}: it exists already")
        self._reporter.send(
            CheckpointSaved(
                step=staged.moment.step,
                manifest_key=environment.manifest_prefix + key,
                save_seconds=time.monotonic() - started + staged.blocked_seconds,
                blocked_seconds=staged.blocked_seconds,
            )
        )
        if environment.is_local:
            self._delete_old()

    def _wait_for_shard(self, staged: Staged, rank: int) -> tuple[Shard, Shard]:
        deadline = time.monotonic() + _SHARD_WAIT_SECONDS
        pause = 0.01
        key = f"rank-{rank}.json"
        while (data := self._storage.get(f"{staged.directory}/{key}")) is None:
            if self.failed_save_anywhere >= staged.number or time.monotonic() > deadline:
                raise RankMissing(f"{staged.directory}/{key}: rank {rank} has not written it")
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
        tensors = Shard.model_validate(json.loads(data)["tensors"])
        return tensors, manifests.make_shard(key, data, rank)

    def _write_in_background(self, staged: Staged) -> None:
        started = time.monotonic()
        try:
            data = self._serialize(staged)
            own = self._write_shard(staged, data)
            if self._world.rank == 0:
                self._write_manifest(staged, own, started)
            self._committed = (staged.moment.step, self._digest(staged, data), staged.metrics)
        except Exception as error:  # training goes on, whatever it is
            self.failed_save = staged.number
            self._report_failure(staged, error)

    def _end_background_save(self, seconds: float) -> None:
        """Rank 0 goes last, because it may wait for a shard that will not come."""
        if self._writer is not None and self._world.rank != 0:
            self._writer.join(seconds)
        (self.failed_save_anywhere,) = self._world.largest([self.failed_save])
        if self._writer is not None:
            self._writer.join(seconds)

    def _commit_together(self, staged: Staged) -> bool:
        started = time.monotonic()
        own = None
        try:
            own = self._write_shard(staged, self._serialize(staged))
        except StorageError as error:
            self._report_failure(staged, error)
        if not self._world.all_agree(own is not None):
            return False
        is_written = True
        if self._world.rank == 0 and own is not None:
            try:
                self._write_manifest(staged, own, started)
            except StorageError as error:
                self._report_failure(staged, error)
                is_written = False
        return self._world.all_agree(is_written)

    def _report_failure(self, staged: Staged, error: Exception) -> None:
        """Training goes on, so a failure is reported: once for each save and cause."""
        _logger.warning("checkpoint of step %d failed: %s", staged.moment.step, error)
        reason = SaveFailure.OTHER
        if isinstance(error, RankMissing):
            reason = SaveFailure.RANK_MISSING
        elif isinstance(error, StorageError):
            reason = SaveFailure(error.failure)
        if self._reported == (staged.moment.step, reason):
            return
        self._reported = (staged.moment.step, reason)
        self._reporter.send(
            SaveFailed(step=staged.moment.step, reason=reason, detail=str(error)[:512])
        )

    def _delete_old(self) -> None:
        """A local run keeps its newest ones; in a pod the platform's retention decides."""
        keys = self._storage.list()
        for name in manifests.expendable(keys, _KEPT_LOCALLY):
            self._storage.delete(f"{name}/{MANIFEST}")
            for key in keys:
                if key.startswith(f"{name}/"):
                    self._storage.delete(key)

    # Restoring

    def _choose(self) -> tuple[str, str | None, tuple[str, ...]]:
        """The newest undamaged checkpoint, its manifest, and the newer ones that have a flaw.

        A store that does not answer must not look like one that holds nothing, so this retries for
        a while, and then the run fails.
        """
        deadline = time.monotonic() + _STORE_WAIT_SECONDS
        pause = 0.2
        while True:
            try:
                return self._look_for_newest()
            except StorageError as error:
                if time.monotonic() + pause > deadline:
                    raise
                _logger.warning("looking for checkpoints: %s", error)
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _look_for_newest(self) -> tuple[str, str | None, tuple[str, ...]]:
        rejected: list[str] = []
        for name in (one.name for one in manifests.newest_first(self._storage.list())):
            text = self._storage.get(f"{name}/{MANIFEST}")
            flaw = manifests.first_flaw(
                manifests.read_manifest(text),
                lambda key, name=name: self._storage.get(f"{name}/{key}"),  # type: ignore[misc]
            )
            if flaw is None and text is not None:
                return name, text.decode(), tuple(rejected)
            _logger.warning("checkpoint %s is not used: %s", name, flaw)
            rejected.append(f"{name}: {flaw}")
        return "", None, tuple(rejected)

    def _load(self, directory: str, manifest: Manifest) -> Moment:
        first, first_tensors = self._read(directory, manifest, 0)
        own, own_tensors = first, first_tensors
        if 0 < self._world.rank < manifest.world_size:
            own, own_tensors = self._read(directory, manifest, self._world.rank)
        for name, thing in self._things.items():
            source, tensors = (
                (first, first_tensors) if _is_replicated(thing) else (own, own_tensors)
            )
            if name not in source["things"]:
                raise CheckpointMismatch(
                    f"run.resume({name}=...): the checkpoint of step {manifest.step} holds "
                    f"{', '.join(source['things'])}. Name the same objects as the run before."
                )
            thing.load_state_dict(tree.decode(source["things"][name], tensors))
        if forgotten := first["things"].keys() - self._things.keys():
            _logger.warning("the checkpoint also holds %s", ", ".join(sorted(forgotten)))
        if self._world.rank < manifest.world_size:
            rng.set_state(tree.decode(own["rng"], own_tensors))
        if self._world.rank == 0:
            self._reporter.last_and_best.restore(first["standing"])
            self._reporter.resend(first["samples"])
        return Moment(first["step"], first["epoch"], first["batches"])

    def _read(
        self, directory: str, manifest: Manifest, rank: int
    ) -> tuple[dict[str, Any], tree.Tensors]:
        from safetensors.torch import load

        files: dict[str, bytes] = {}
        for shard in manifest.shards:
            if shard.rank == rank:
                data = self._storage.get(f"{directory}/{shard.key}")
                if flaw := manifests.flaw_of(shard, data):
                    raise StorageError(f"{directory}/{shard.key}: {flaw.value} since it was chosen")
                files[shard.key] = data or b""
        document = json.loads(files[f"rank-{rank}.json"])
        return document, load(files[f"rank-{rank}.safetensors"])

    def _report_resumed(
        self, directory: str, moment: Moment | None, seconds: float, rejected: tuple[str, ...]
    ) -> None:
        if moment is None and not rejected:
            return
        if moment is not None:
            _logger.info("resumed at step %d from checkpoint %s", moment.step, directory)
        key = f"{self._environment.manifest_prefix}{directory}/{MANIFEST}"
        self._reporter.send(
            Resumed(
                step=0 if moment is None else moment.step,
                manifest_key=None if moment is None else key,
                load_seconds=seconds,
                rejected=list(rejected)[:100],
            )
        )


def _is_replicated(thing: Any) -> bool:
    """Whether data parallelism keeps this state equal on all ranks, so that one copy is enough."""
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return isinstance(thing, Module | Optimizer | LRScheduler)
