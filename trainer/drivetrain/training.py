"""`drivetrain.run`: the interface of one training run for a script, on every rank.

The script's loop goes through `steps` or `epochs`. One iteration is one optimizer step; what the
platform does (checkpoint, stop) happens at the boundary between two, in the iterator's next call or
in `advance()`. Invariant: all ranks stop and checkpoint after the same step, and code after the
loop runs only when training is complete.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from drivetrain import environment as environments
from drivetrain import hyperparameters as hyper
from drivetrain import local_runs, preparation, results, rng
from drivetrain.attribution import Attribution
from drivetrain.boundary import AfterSteps, Boundary
from drivetrain.checkpointing import Checkpointer
from drivetrain.divided_data import require_divided
from drivetrain.environment import Environment
from drivetrain.epoch import Epoch
from drivetrain.errors import (
    EXIT_INTERRUPTED,
    CheckpointWriteFailed,
    DrivetrainError,
    Interrupted,
)
from drivetrain.held_state import Moment
from drivetrain.loading import BatchSource, StoredPosition
from drivetrain.messages import StepProgress
from drivetrain.parallel import Accumulation, World
from drivetrain.reporting import Reporter
from drivetrain.seeding import Seeds
from drivetrain.stopping import StopRequest
from drivetrain.storage import open_storage
from drivetrain_schemas.jobs import CheckpointPolicy

if TYPE_CHECKING:
    import torch

_FINAL_SAVE_SECONDS = 120.0
_FLUSH_SECONDS = 5.0
_logger = logging.getLogger("drivetrain")

Batch = TypeVar("Batch")
M = TypeVar("M", bound="torch.nn.Module")


def run(
    *,
    max_steps: int | None = None,
    hyperparameters: Mapping[str, hyper.Scalar] | None = None,
    seed: int | None = None,
    checkpoint_every_steps: int | None = None,
    checkpoint_every_minutes: float | None = None,
) -> "Run":
    """Start a run; use it as a context manager. The job's spec overrides the arguments.

    Random number generators that the script seeds itself keep its seed; the others get `seed`, or
    else the seed that the script gave to torch, or 0. Outside the platform this is a local run in
    `./runs`, with the same checkpoints and resume.
    """
    environment = environments.read(os.environ)
    policy = preparation.make_policy(checkpoint_every_steps, checkpoint_every_minutes)
    overrides: Mapping[str, hyper.Scalar] = {}
    if (job := environment.job) is not None:
        overrides = job.hyperparameters
        max_steps = job.max_steps or max_steps
        seed = seed if job.seed is None else job.seed
        if job.checkpoint.every_steps or job.checkpoint.every_minutes:
            policy = job.checkpoint
    if max_steps is not None and max_steps < 1:
        raise DrivetrainError(f"max_steps={max_steps}: write at least 1, or leave it out")
    values = hyper.merge(hyperparameters or {}, overrides)
    return Run(environment, values, max_steps, seed, policy)


class Run(AbstractContextManager["Run"]):
    """One run on one rank. Created by `drivetrain.run`.

    The end of the `with` block, and `sys.exit(0)` in it, mean that training is complete: the final
    checkpoint and the result are written. Any other exception is an error, and writes neither.

    Attributes: `step` is the number of optimizer steps begun (in a loop that calls `advance()`:
    ended), over all attempts; `max_steps` and `hyperparameters` are those of the job where it has
    them; `seed` decides the order of the data.
    """

    def __init__(
        self,
        environment: Environment,
        hyperparameters: Mapping[str, hyper.Scalar],
        max_steps: int | None,
        seed: int | None,
        policy: CheckpointPolicy,
    ) -> None:
        self.hyperparameters: Mapping[str, Any] = hyperparameters
        self.max_steps = max_steps
        self.step = 0
        self._epoch = 0
        self._batches = 0
        self._position = 0  # batches of this pass before the current ones
        self._total_steps = max_steps  # may become known later; for progress only
        self._state = "training"
        self._is_entered = False
        self._has_begun = False
        self._has_parted = False
        self._rng_to_restore: dict[str, Any] | None = None
        self._stored_position: StoredPosition | None = None  # of another number of ranks
        self._batch_size: int | None = None
        self._is_divided = False
        self._rng_of_pass: dict[str, Any] | None = None  # at the top of the current epoch
        preparation.log_to_stderr()
        self._world = World(environment)
        self._seeds = Seeds(seed, self._world.share)
        self.seed = self._seeds.seed
        self._environment = environment = preparation.settle_local(
            environment, self._world, local_runs.this_experiment(hyperparameters, seed)
        )
        self._rank = environment.rank
        if self._rank == 0:
            _logger.info(self._seeds.describe())
        self._reporter = Reporter(
            environment,
            preparation.open_sink(environment),
            preparation.make_last_and_best(environment),
            self._progress,
        )
        self._checkpointer = Checkpointer(
            environment,
            self._world,
            self._reporter,
            open_storage(
                environment.store_url,
                environment.store_endpoint_url,
                directory=environment.manifest_prefix,
                store_id=environment.store_id,
            ),
        )
        self._stop = StopRequest(environment.directory, environment.is_local, self._hurry)
        self._boundary = Boundary(self._world, self._checkpointer, policy, self._stop, self._moment)
        # Where the step of a value is not simply `step`: before the loop, and in a script's own.
        self._attribution: Attribution | None = Attribution(self._log_at, self._warn_of_no_step)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world.size

    @property
    def device(self) -> "torch.device":
        return self._world.device

    @property
    def directory(self) -> Path:
        """The directory that the program was started in, the same in every attempt.

        On the platform its files are saved with each checkpoint and put back with it.
        """
        return self._environment.job_directory

    @property
    def num_dropped(self) -> int:
        """The number of this rank's samples that could not be sent."""
        return self._reporter.num_dropped

    def parallel(self, module: M, **options: Any) -> M:
        """The module on this rank's device and, with several ranks, trained data-parallel.

        `options` are arguments of DistributedDataParallel, such as `find_unused_parameters=True`.
        """
        return self._world.wrap(module, options)  # type: ignore[return-value]

    def resume(self, **things: Any) -> bool:
        """Name the state to save, and restore the newest checkpoint. False if there is none."""
        self._checkpointer.hold(things)
        moment = self._checkpointer.restore()
        if moment is None:
            self._part_random_numbers()
            return False
        self.step, self._epoch, self._batches = moment.step, moment.epoch, moment.batches
        self._rng_of_pass = moment.loop.get("rng_of_pass")
        self._has_parted = True
        stored_size = moment.loop.get("world_size", self._world.size)
        if stored_size != self._world.size:
            self._continue_with_other_ranks(moment, stored_size)
        # Set again when the loop starts, so that draws of the script until then change nothing.
        self._rng_to_restore = rng.get_state()
        self._boundary.start_at(self.step)
        return True

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Log values of this step. Costs about a microsecond; never blocks, never fails.

        Only values of rank 0 are used. Values may be tensors: one on the CPU is read at once, one
        on a device is copied there and read later, without waiting for the device.
        """
        if self._rank:
            return
        if values:
            named = {**values, **named}
        if self._attribution is None:
            self._log_at(self.step, named)
        else:
            self._require_block()
            self._attribution.log(self.step, named)

    def steps(self, loader: Iterable[Batch] | None = None) -> Iterator[Any]:
        """Batches of the loader, repeated until max_steps; without a loader, step numbers."""
        self._require_block()
        if self.max_steps is None:
            raise DrivetrainError("steps() ends at max_steps: set it in drivetrain.run or the job")
        steps = self._count() if loader is None else self._rounds(loader)
        return chain(steps, AfterSteps(self._boundary))

    def epochs(self, count: int) -> Iterator[Epoch]:
        """The remaining passes over the data, out of `count`."""
        self._require_block()
        return chain(self._passes(count), AfterSteps(self._boundary))

    def advance(self) -> None:
        """Mark the end of one optimizer step, in a loop of the script's own.

        Such a loop starts at `resume`, which has already restored the random numbers.
        """
        self._boundary.raise_again()
        if not self._has_begun:
            self._begin()
        self._rng_to_restore = None
        self.step += 1
        if self._attribution is not None:
            self._attribution.advanced(self.step)
        self._pass_boundary()

    def __enter__(self) -> "Run":
        self._is_entered = True
        self._stop.install()
        self._reporter.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        interrupted = self._interruption(error)
        is_complete = interrupted is None and (error is None or _is_clean_exit(error))
        try:
            if self._attribution is not None:
                self._attribution.end(self.step)
            if is_complete:
                self._complete()
            elif interrupted is not None:
                self._stop_here(interrupted, error)
            if is_complete or interrupted is not None:
                self._world.leave()  # not after an error: it would wait for ranks that exited
        finally:
            self._is_entered = False
            self._reporter.close(_FLUSH_SECONDS)
            self._stop.restore()
        if interrupted is not None:
            raise SystemExit(EXIT_INTERRUPTED) from None

    # The loop

    def _count(self) -> Iterator[int]:
        self._start_loop()
        while not self._is_finished():
            self.step += 1
            yield self.step
            self._pass_boundary()

    def _rounds(self, loader: Iterable[Any]) -> Iterator[Any]:
        source = BatchSource(loader, self._world.size, self.seed, self._rank)
        while not self._is_finished():
            before, skipped = self.step, self._batches
            yield from self._pass(source, is_epoch=False)
            if self.step == before and not skipped:
                raise DrivetrainError(_describe_no_batch(source))
            if self._is_finished():
                return
            self._epoch, self._batches = self._epoch + 1, 0

    def _passes(self, count: int) -> Iterator[Epoch]:
        while self._epoch < count and not self._is_finished():
            self._boundary.raise_again()
            self._start_epoch()
            yield Epoch(self, self._epoch, count)
            self._boundary.raise_again()
            self._epoch, self._batches, self._rng_of_pass = self._epoch + 1, 0, None
            if self._boundary.awaits_end_of_pass:
                self._boundary.look()
            else:
                self._pass_boundary()  # of a step that `break` has ended

    def _start_epoch(self) -> None:
        """What the script draws before it begins the pass is the same after a resume within it."""
        if not self._has_begun:
            self._begin()
        self._position = self._batches
        if self._rng_to_restore is None:
            self._rng_of_pass = rng.get_state()
        elif self._batches and self._rng_of_pass is not None:
            rng.set_state(self._rng_of_pass)
        else:
            self._restore_random_numbers()
            self._rng_of_pass = rng.get_state()

    def _epoch_steps(
        self, source: BatchSource, accumulate: int | None, num_epochs: int
    ) -> Iterator[Any]:
        if self.max_steps is None and source.num_batches is not None:
            self._total_steps = -(-source.num_batches // (accumulate or 1)) * num_epochs
        if accumulate is None:
            steps = self._pass(source)
        else:
            steps = self._pass_accumulated(source, accumulate)
        return chain(steps, AfterSteps(self._boundary))

    def _pass(self, source: BatchSource, is_epoch: bool = True) -> Iterator[Any]:
        batches = self._start_pass(source)
        for batch in () if self._is_finished() else batches:
            self.step += 1
            self._position = self._batches
            self._batches += 1
            yield batch
            self._pass_boundary(may_save=not (is_epoch and self._batches == source.num_batches))
            if self._is_finished():
                return
        if is_epoch and not self._batches and source.is_read_once:
            raise DrivetrainError(_describe_no_batch(source))

    def _pass_accumulated(self, source: BatchSource, accumulate: int) -> Iterator[Accumulation]:
        batches = self._start_pass(source)
        while not self._is_finished():
            chunk = Accumulation(islice(batches, accumulate), self._world.replicas)
            if not len(chunk):
                if not self._batches and source.is_read_once:
                    raise DrivetrainError(_describe_no_batch(source))
                return
            self.step += 1
            self._position = self._batches
            self._batches += len(chunk)
            yield chunk
            self._pass_boundary(may_save=self._batches != source.num_batches)

    def _start_pass(self, source: BatchSource) -> Iterator[Any]:
        if self._stored_position is not None:
            self._batches = self._stored_position.in_batches(source.batch_size, self._world.size)
            self._position, self._stored_position = self._batches, None
        self._batch_size = source.batch_size
        batches = source.start_pass(self._epoch, self._batches)
        self._start_loop()
        if self._world.size > 1 and not self._is_divided:
            self._is_divided = True
            return require_divided(batches, self._world)
        return batches

    def _start_loop(self) -> None:
        self._boundary.raise_again()
        self._pass_boundary()  # of a step that `break` has ended
        if not self._has_begun:
            self._begin()
        if self._attribution is not None:
            self._attribution.release(self.step)
            self._attribution = None
        self._restore_random_numbers()

    def _begin(self) -> None:
        """Before the first step of this attempt."""
        self._require_block()
        self._has_begun = True
        self._part_random_numbers()
        if not self._checkpointer.holds_anything and self._rank == 0:
            _logger.warning(
                "no checkpoint will be written, and a restart begins at step 0: name the state to"
                " save before the loop, as in run.resume(model=model, optimizer=optimizer)"
            )

    def _require_block(self) -> None:
        if not self._is_entered:
            raise DrivetrainError(
                "outside of its block a run saves and reports nothing: write"
                " `with drivetrain.run(...) as run:` around the loop"
            )

    def _continue_with_other_ranks(self, moment: Moment, stored_size: int) -> None:
        """The position in the data is that of the samples; ranks that are new draw their own."""
        if moment.batches:
            self._stored_position = StoredPosition(
                moment.batches, moment.loop.get("batch_size"), stored_size
            )
        if self._rank >= stored_size:
            self._rng_of_pass = None
            rng.seed_all(rng.mix(self.seed, self._rank, self.step))

    def _part_random_numbers(self) -> None:
        """Until here all ranks draw the same, to build the same model; then they differ."""
        if not self._has_parted and self._world.size > 1:
            self._seeds.part(self._rank)
        self._has_parted = True

    def _restore_random_numbers(self) -> None:
        if self._rng_to_restore is not None:
            rng.set_state(self._rng_to_restore)
            self._rng_to_restore = None

    def _is_finished(self) -> bool:
        return self.max_steps is not None and self.step >= self.max_steps

    def _pass_boundary(self, may_save: bool = True) -> None:
        if self.step >= self._boundary.due_at:
            self._boundary.look(may_save)

    def _log_at(self, step: int, named: Mapping[str, Any]) -> None:
        self._reporter.log(step, named)
        self._boundary.logged(step, named)

    def _hurry(self) -> None:
        self._boundary.hurry()

    def _moment(self) -> Moment:
        loop = {
            "batch_size": self._batch_size,
            "rng_of_pass": self._rng_of_pass if self._batches else None,
            "world_size": self._world.size,
        }
        return Moment(self.step, self._epoch, self._batches, loop)

    # The end

    def _interruption(self, error: BaseException | None) -> Interrupted | None:
        """Whether the run ends as interrupted, even if the script swallowed the exception."""
        if isinstance(error, CheckpointWriteFailed | KeyboardInterrupt):
            return None
        return error if isinstance(error, Interrupted) else self._boundary.interrupted

    def _complete(self) -> None:
        self._state = "checkpointing"
        if self._checkpointer.holds_anything:
            self._checkpointer.finish(self._moment(), _FINAL_SAVE_SECONDS)
        self._reporter.settle()
        if self._rank == 0:
            _logger.info("complete after step %d", self.step)
            if unsaved := self._reporter.last_and_best.unsaved_best():
                _logger.info("%s", unsaved)
            results.write(self._environment.directory, self.step, self._reporter.last_and_best)

    def _stop_here(self, interrupted: Interrupted, error: BaseException | None) -> None:
        if error is not interrupted:
            _logger.warning(
                "the script caught the request to stop and went on%s; the checkpoint is of"
                " step %d, where it was made",
                f" to {type(error).__name__}: {error}" if error else "",
                interrupted.step,
            )
        self._boundary.save_interrupted(self._moment())
        self._reporter.settle()
        if self._rank == 0 and not self._environment.is_local:
            results.write(self._environment.directory, self.step, self._reporter.last_and_best)
        _logger.info("interrupted: %s", interrupted)

    def _warn_of_no_step(self) -> None:
        _logger.warning(
            "run.log was called again and again at step 0, and of each name only the last value is"
            " kept: loop over run.steps(...), or call run.advance() after each optimizer step"
        )

    def _progress(self) -> StepProgress:
        state = self._state
        if self._boundary.interrupted is not None:
            state = "stopping"
        elif state == "training" and self._checkpointer.is_saving:
            state = "checkpointing"
        return StepProgress(
            step=self.step,
            max_steps=self._total_steps,
            epoch=self._epoch,
            state=state,
            num_dropped=self._reporter.num_dropped,
            num_refused=self._reporter.num_refused,
        )


def _describe_no_batch(source: BatchSource) -> str:
    if source.is_read_once:
        return (
            "the loader gave no batch: a generator or another iterator can be read only once; pass"
            " a list, a DataLoader, an object whose __iter__ starts again, or a new one each epoch"
        )
    return "the loader is empty"


def _is_clean_exit(error: BaseException) -> bool:
    """`sys.exit()` and `sys.exit(0)`: the script ends early, and is content."""
    return isinstance(error, SystemExit) and error.code in (None, 0)
