"""The checkpoints of a run: saved and restored by all ranks together, without pickle.

A save in the background stages a copy of everything that is restored (what the script named, random
numbers, the position in the data, best metric, samples not yet acknowledged), because training
changes the original meanwhile; the final save writes from the original. Each rank writes its own
shard, hashed while it is written; rank 0 waits for all of them in the store and writes the manifest
last. A save that fails is logged and reported, and training goes on; only the final one must
succeed.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from drivetrain import manifests, restoring, tree
from drivetrain.environment import Environment
from drivetrain.errors import CheckpointWriteFailed, RankMissing, StorageError
from drivetrain.files.agreeing import agree_on_another_machine
from drivetrain.files.saving import Captured
from drivetrain.files.with_checkpoints import NotTaken, open_checkpoint_files
from drivetrain.hashing import Hashed
from drivetrain.held_state import LESS, MAX_STATE_BYTES, TOO_MUCH, HeldState, Moment
from drivetrain.messages import CheckpointSaved, Resumed, SaveFailed
from drivetrain.parallel import World
from drivetrain.reporting import Reporter
from drivetrain.storage import Storage, open_storage
from drivetrain.tensor_files import TensorFile
from drivetrain_schemas.checkpoint_names import MANIFEST, directory_name, job_directory
from drivetrain_schemas.checkpoints import Manifest, SaveFailure, Shard

_SHARD_WAIT_SECONDS = 120.0
_KEPT_LOCALLY = 3
_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class Staged:
    """One rank's state for one save."""

    number: int
    directory: str
    moment: Moment
    state: str  # JSON
    extras: dict[str, Any]  # changes without the training state changing
    metrics: dict[str, float]
    is_best: bool  # saved because of these
    blocked_seconds: float
    files: Captured | NotTaken | None  # of rank 0 in a pod
    tensors: TensorFile = field(repr=False)


@dataclass(frozen=True, slots=True)
class Written:
    """The content of this rank's last save that is complete."""

    step: int
    metrics: dict[str, float]
    state: str
    sha256: str  # of the tensors


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
        self._held = HeldState(world)
        self.holds_anything = False
        self._files = open_checkpoint_files(environment)
        self._number = 0
        self._writer: threading.Thread | None = None
        self._written: Written | None = None
        self._reported: tuple[int, SaveFailure] | None = None
        self._finish_by = math.inf
        self._is_checked = False
        self.failed_save = 0
        self.failed_save_anywhere = 0
        self.judged_metric = environment.judged_metric
        self.last_judged = -1  # the step of the last save that has a value of the metric
        self.best_save_seconds = 0.0  # what saves at the best have taken

    @property
    def is_saving(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def is_best(self, step: int) -> bool:
        """Whether the best value of the judged metric so far was logged at this step."""
        self._reporter.settle()
        best = self._reporter.last_and_best.best
        return best is not None and best[1] == step

    def hold(self, things: Mapping[str, Any]) -> None:
        """Name what checkpoints hold. State that cannot be stored is refused before training."""
        self._held.hold(things)
        self.holds_anything = self.holds_anything or bool(things)
        if self._files is not None:
            self._files.take_over()

    def check_once(self, moment: Moment) -> None:
        """The same after the first step, which creates the state of most optimizers."""
        if not self._is_checked:
            self._is_checked = True
            self._held.check(moment)
            if self._world.size > 1:
                self._compare_ranks()

    def _compare_ranks(self) -> None:
        """After the first step, ranks that train together have the same weights."""
        own = self._held.fingerprint()
        if self._world.largest([own, -own]) != [own, -own]:
            self._reporter.warn(
                "ranks_apart",
                "the weights of the ranks differ after the first step, and checkpoints hold those"
                " of rank 0: each rank trains a model of its own. Wrap each model, as in"
                " model = run.parallel(model)",
            )

    def begin(self, moment: Moment, is_best: bool = False) -> None:
        """Stage now, write in the background. No save may be going on."""
        staged = self._stage(moment, is_final=False, is_best=is_best)
        if self.judged_metric in staged.metrics:
            self.last_judged = moment.step
        self._writer = threading.Thread(
            target=self._write_in_background, args=(staged,), name="drivetrain-save", daemon=True
        )
        self._writer.start()

    def finish(self, moment: Moment, seconds: float) -> None:
        """Write the final checkpoint and return when it is complete.

        Called by all ranks at the same step. Tried again until the time is over; raises
        CheckpointWriteFailed then.
        """
        self._finish_by = time.monotonic() + seconds
        self._end_background_save()
        staged = self._stage(moment, is_final=True)
        if self._world.all_agree(self._is_written(staged)):
            return
        pause = 0.2
        while not self._commit_together(staged):
            if self._world.largest([int(time.monotonic() + pause > self._finish_by)]) != [0]:
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
        choice = None
        if self._world.rank == 0:
            choice = restoring.choose(self._storage)
            start = self._environment.job.start_from if self._environment.job else None
            storage = self._storage
            if start is not None and choice.manifest is None:
                storage = self._source(start.job_id)
                choice = restoring.choose_start(storage, start.checkpoint)
            if self._files is not None:
                self._files.agree_with(storage, choice)
        choice, first_pod = self._world.share((choice, self._environment.directory.name))
        self._agree_on_other_machines(choice, first_pod)
        moment = None
        if choice.manifest is not None:
            with tree.deep_reading():
                moment = self._load(choice, choice.manifest)
        if self._world.rank == 0:
            self._report_resumed(choice, moment, time.monotonic() - started)
        return moment

    def _agree_on_other_machines(self, choice: restoring.Choice, first_pod: str) -> None:
        """Return when the directory of every pod has the files of the choice."""
        environment = self._environment
        if environment.is_local or self._world.size == 1:
            return
        if self._world.rank > 0 and environment.local_rank == 0:
            storage = self._storage
            if choice.is_start and choice.manifest is not None:
                storage = self._source(choice.manifest.job_id)
            agree_on_another_machine(environment, first_pod, storage, choice)
        self._world.all_agree(True)

    # Saving

    def _stage(self, moment: Moment, is_final: bool, is_best: bool = False) -> Staged:
        """The final state does not change any more, so it is not copied."""
        started = time.monotonic()
        self._number += 1
        state, tensors = self._held.encode(moment)
        text = json.dumps(state)
        if len(text) > MAX_STATE_BYTES:  # what grew that much in hours is not lost for it
            detail = f"{TOO_MUCH}: each checkpoint stops training to write it. {LESS.capitalize()}"
            self._reporter.warn("large_state", detail)
        if not is_final:
            tensors = tree.copied(tensors)
        samples = self._reporter.unacknowledged() if self._world.rank == 0 else []
        last_and_best = self._reporter.last_and_best
        metrics = last_and_best.values_at(moment.step)
        extras: dict[str, Any] = {}
        if self._world.rank == 0:
            saved = last_and_best.saved_with(moment.step, metrics)
            extras = {"samples": samples, "standing": {**last_and_best.to_json(), "saved": saved}}
        return Staged(
            number=self._number,
            directory=self._directory_of(moment.step),
            moment=moment,
            state=text,
            extras=extras,
            metrics=metrics,
            is_best=is_best,
            files=None if self._files is None else self._files.capture(),
            blocked_seconds=time.monotonic() - started,
            tensors=TensorFile(tensors),
        )

    def _directory_of(self, step: int) -> str:
        return directory_name(self._environment.fence, step, self._number, self._nonce)

    def _is_written(self, staged: Staged) -> bool:
        """Whether the last save has the same content. The state is only hashed, and only if a save
        of this very step is complete: a script may change its weights after the loop."""
        last = self._written
        if last is None or last.step != staged.moment.step or last.metrics != staged.metrics:
            return False
        if last.state != staged.state or last.sha256 != manifests.hash_of(staged.tensors):
            return False
        return self._files is None or self._files.is_written(staged.files)

    def _write_shard(self, staged: Staged) -> tuple[Shard, Shard]:
        rank = self._world.rank
        key = f"rank-{rank}.safetensors"
        hashed = Hashed(staged.tensors)
        try:
            self._storage.put_pieces(f"{staged.directory}/{key}", hashed, staged.tensors.size_bytes)
            tensors = Shard(key=key, size_bytes=hashed.num_bytes, sha256=hashed.sha256, rank=rank)
            document = _document(staged, tensors)
            self._storage.put(f"{staged.directory}/rank-{rank}.json", document)
        except StorageError:
            with suppress(StorageError):  # a full store gets its space back
                self._storage.delete(f"{staged.directory}/{key}")
            raise
        return tensors, manifests.make_shard(f"rank-{rank}.json", document, rank)

    def _write_manifest(self, staged: Staged, own: tuple[Shard, Shard], started: float) -> None:
        shards = list(own)
        for rank in range(1, self._world.size):
            shards += self._wait_for_shard(staged, rank)
        stored = None
        if self._files is not None and staged.files is not None:
            stored = self._files.store(staged.files, self._storage, staged.directory)
            shards += [] if stored.shard is None else [stored.shard]
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
            files=None if stored is None else stored.summary,
            blocked_seconds=staged.blocked_seconds,
            written_at=datetime.now(UTC),
        )
        key = f"{staged.directory}/{MANIFEST}"
        if not self._storage.put_if_absent(key, manifest.model_dump_json().encode()):
            raise StorageError(f"{key}: it exists already")
        if self._files is not None and staged.files is not None and stored is not None:
            self._files.written(staged.files, stored)
        last_and_best = self._reporter.last_and_best
        last_and_best.saved = last_and_best.saved_with(staged.moment.step, staged.metrics)
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
        give_up_at = time.monotonic() + _SHARD_WAIT_SECONDS
        pause = 0.01
        key = f"rank-{rank}.json"
        while (data := self._storage.get(f"{staged.directory}/{key}")) is None:
            is_late = time.monotonic() > min(give_up_at, self._finish_by)
            if is_late or self.failed_save_anywhere >= staged.number:
                raise RankMissing(f"{staged.directory}/{key}: rank {rank} has not written it")
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
        tensors = Shard.model_validate(json.loads(data)["tensors"])
        return tensors, manifests.make_shard(key, data, rank)

    def _write_in_background(self, staged: Staged) -> None:
        started = time.monotonic()
        try:
            own = self._write_shard(staged)
            if self._world.rank == 0:
                self._write_manifest(staged, own, started)
            self._written = Written(
                step=staged.moment.step,
                metrics=staged.metrics,
                state=staged.state,
                sha256=own[0].sha256,
            )
        except Exception as error:  # training goes on, whatever it is
            self.failed_save = staged.number
            self._report_failure(staged, error)
        if staged.is_best:
            self.best_save_seconds += time.monotonic() - started + staged.blocked_seconds

    def _end_background_save(self) -> None:
        """Rank 0 goes last, because it may wait for a shard that will not come."""
        if self._world.rank != 0:
            self._join_writer()
        (self.failed_save_anywhere,) = self._world.largest([self.failed_save])
        self._join_writer()

    def _join_writer(self) -> None:
        if self._writer is not None:
            self._writer.join(max(0.0, self._finish_by - time.monotonic()))

    def _commit_together(self, staged: Staged) -> bool:
        started = time.monotonic()
        own = None
        try:
            own = self._write_shard(staged)
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

    def _source(self, job_id: str) -> Storage:
        """The checkpoints of the job that this one was forked from; of the same tenant always."""
        environment = self._environment
        return open_storage(
            environment.store_url,
            environment.store_endpoint_url,
            directory=job_directory(environment.tenant_id, job_id),
            store_id=environment.store_id,
        )

    def _load(self, choice: restoring.Choice, manifest: Manifest) -> Moment:
        rank = self._world.rank
        storage, directory = self._storage, choice.directory
        if choice.is_start:
            storage = self._source(manifest.job_id)
        own = first = restoring.read_rank(storage, directory, manifest, 0)
        has_own = rank < manifest.world_size
        if rank > 0 and has_own:
            own = restoring.read_rank(storage, directory, manifest, rank)
        moment = self._held.load(first, own, has_own)
        if rank == 0 and not choice.is_start:  # what another job has reached is that job's
            last_and_best = self._reporter.last_and_best
            last_and_best.restore(first.document["standing"])
            last_and_best.saved = last_and_best.saved_with(manifest.step, manifest.metrics)
            self._reporter.resend(first.document["samples"])
        return moment

    def _report_resumed(
        self, choice: restoring.Choice, moment: Moment | None, seconds: float
    ) -> None:
        environment = self._environment
        if moment is None and environment.attempt > 1 and not environment.is_local:
            self._reporter.warn(
                "begins_again",
                "training begins again at step 0: no checkpoint of an earlier attempt can be used",
            )
        if moment is None and not choice.rejected:
            return
        if moment is not None:
            _logger.info("resumed at step %d from checkpoint %s", moment.step, choice.directory)
            if moment.batches and not self._held.holds_own_state(moment):
                _logger.info("within a pass: sums in variables begin again; epoch.state keeps them")
        key = f"{environment.manifest_prefix}{choice.directory}/{MANIFEST}"
        self._reporter.send(
            Resumed(
                step=0 if moment is None else moment.step,
                manifest_key=None if moment is None or choice.is_start else key,
                load_seconds=seconds,
                rejected=list(choice.rejected)[:100],
            )
        )


def _document(staged: Staged, tensors: Shard) -> bytes:
    """The state is JSON already; the rest is put around it."""
    rest = json.dumps({"format": 1, "tensors": tensors.model_dump(), **staged.extras})
    return f"{rest[:-1]}, {staged.state[1:]}".encode()
