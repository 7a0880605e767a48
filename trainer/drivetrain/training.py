"""`drivetrain.run`: the interface of one training run for a script, on every rank.

The script's loop goes through `steps` or `epochs`. One iteration is one optimizer step; what the
platform does (checkpoint, stop) happens at the boundary between two, in the iterator's next call or
in `advance()`. Invariant: all ranks stop and checkpoint after the same step, and code after the
loop runs only when training is complete.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import islice
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from drivetrain import environment as environments
from drivetrain import hyperparameters as hyper
from drivetrain import preparation, results, rng, signals
from drivetrain.agreement import Wish, next_multiple, steps_between_looks
from drivetrain.checkpointing import Checkpointer
from drivetrain.environment import Environment
from drivetrain.errors import EXIT_INTERRUPTED, DrivetrainError, Interrupted
from drivetrain.held_state import Moment
from drivetrain.loading import BatchSource
from drivetrain.messages import StepProgress
from drivetrain.parallel import Accumulation, World
from drivetrain.reporting import Reporter
from drivetrain.storage import open_storage
from drivetrain_schemas.jobs import CheckpointPolicy
from drivetrain_schemas.pods import StopNotice

if TYPE_CHECKING:
    import torch

_FINAL_SAVE_SECONDS = 120.0
_STOP_SAVE_SECONDS = 20.0
_FLUSH_SECONDS = 5.0
_logger = logging.getLogger("drivetrain")

Batch = TypeVar("Batch")
M = TypeVar("M", bound="torch.nn.Module")


def run(
    *,
    max_steps: int | None = None,
    hyperparameters: Mapping[str, hyper.Scalar] | None = None,
    seed: int = 0,
    checkpoint_every_steps: int | None = None,
    checkpoint_every_minutes: float | None = None,
) -> "Run":
    """Start a run; use it as a context manager. The job's spec overrides the arguments.

    Outside the platform this is a local run in `./runs`, with the same checkpoints and resume.
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
    """One run on one rank. Created by `drivetrain.run`."""

    def __init__(
        self,
        environment: Environment,
        hyperparameters: Mapping[str, hyper.Scalar],
        max_steps: int | None,
        seed: int,
        policy: CheckpointPolicy,
    ) -> None:
        self.hyperparameters: Mapping[str, Any] = hyperparameters
        self.max_steps = max_steps
        self.seed = seed
        self.step = 0
        self._policy = policy
        self._epoch = 0
        self._batches = 0
        self._total_steps = max_steps  # may become known later; for progress only
        self._state = "training"
        self._has_parted = False
        self._rng_to_restore: dict[str, Any] | None = None
        self._stop_reason: str | None = None
        preparation.log_to_stderr()
        rng.seed_all(seed)
        self._world = World(environment)
        self._environment = environment = preparation.settle_local(environment, self._world)
        self._rank = environment.rank
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
        self._save_is_due = False
        self._steps_between = 1
        self._next_look = 1
        self._next_save_step = policy.every_steps
        self._looked_at = (0, time.monotonic())
        self._saved_at = time.monotonic()

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
    def num_dropped(self) -> int:
        """The number of this rank's samples that could not be sent."""
        return self._reporter.num_dropped

    def parallel(self, module: M) -> M:
        """The module on this rank's device and, with several ranks, trained data-parallel."""
        return self._world.wrap(module)  # type: ignore[return-value]

    def resume(self, **things: Any) -> bool:
        """Name the state to save, and restore the newest checkpoint. False if there is none."""
        self._checkpointer.hold(things)
        moment = self._checkpointer.restore()
        if moment is None:
            self._part_random_numbers()
            return False
        self.step, self._epoch, self._batches = moment.step, moment.epoch, moment.batches
        self._has_parted = True
        # Set again when the loop starts, so that draws of the script until then change nothing.
        self._rng_to_restore = rng.get_state()
        self._next_look = self.step + 1
        if self._policy.every_steps:
            self._next_save_step = next_multiple(self.step, self._policy.every_steps)
        self._looked_at = (self.step, time.monotonic())
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
        self._reporter.log(self.step, named)

    def steps(self, loader: Iterable[Batch] | None = None) -> Iterator[Any]:
        """Batches of the loader, repeated until max_steps; without a loader, step numbers."""
        if self.max_steps is None:
            raise DrivetrainError("steps() ends at max_steps: set it in drivetrain.run or the job")
        return self._count() if loader is None else self._rounds(loader)

    def epochs(self, count: int) -> Iterator["Epoch"]:
        """The remaining passes over the data, out of `count`."""
        while self._epoch < count and not self._is_finished():
            yield Epoch(self, self._epoch, count)
            self._epoch, self._batches = self._epoch + 1, 0
            if self._save_is_due:  # including what was logged after the pass
                self._look()

    def advance(self) -> None:
        """Mark the end of one optimizer step, in a loop of the script's own.

        Such a loop starts at `resume`, which has already restored the random numbers.
        """
        self._rng_to_restore = None
        self._part_random_numbers()
        self.step += 1
        self._boundary()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish(_FINAL_SAVE_SECONDS, is_complete=True)
                _logger.info("complete after step %d", self.step)
            elif isinstance(error, Interrupted):
                self._finish(self._seconds_to_stop(), is_complete=False)
                _logger.info("interrupted: %s", error)
            if error is None or isinstance(error, Interrupted):
                self._world.leave()  # not after an error: it would wait for ranks that exited
        finally:
            self._reporter.close(_FLUSH_SECONDS)
            signals.restore()
        if isinstance(error, Interrupted):
            raise SystemExit(EXIT_INTERRUPTED) from None

    def __enter__(self) -> "Run":
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGTERM] + [signal.SIGINT] * self._environment.is_local
            signals.handle(numbers, self._on_signal)
        self._reporter.start()
        return self

    # The loop

    def _count(self) -> Iterator[int]:
        self._start_loop()
        while not self._is_finished():
            self.step += 1
            yield self.step
            self._boundary()

    def _rounds(self, loader: Iterable[Any]) -> Iterator[Any]:
        source = BatchSource(loader, self._world.size, self.seed, self._rank)
        while not self._is_finished():
            before, skipped = self.step, self._batches
            yield from self._pass(source, is_epoch=False)
            if self.step == before and not skipped:
                raise DrivetrainError("the loader is empty")
            if self._is_finished():
                return
            self._epoch, self._batches = self._epoch + 1, 0

    def _pass(self, source: BatchSource, is_epoch: bool = True) -> Iterator[Any]:
        batches = source.start_pass(self._epoch, self._batches)
        self._start_loop()
        for batch in () if self._is_finished() else batches:
            self.step += 1
            self._batches += 1
            yield batch
            self._boundary(may_save=not (is_epoch and self._batches == source.num_batches))
            if self._is_finished():
                return

    def _pass_accumulated(self, source: BatchSource, accumulate: int) -> Iterator[Accumulation]:
        batches = source.start_pass(self._epoch, self._batches)
        self._start_loop()
        while not self._is_finished():
            chunk = Accumulation(islice(batches, accumulate), self._world.replicas)
            if not len(chunk):
                return
            self.step += 1
            self._batches += len(chunk)
            yield chunk
            self._boundary(may_save=self._batches != source.num_batches)

    def _start_loop(self) -> None:
        if self._rng_to_restore is not None:
            rng.set_state(self._rng_to_restore)
            self._rng_to_restore = None
        self._part_random_numbers()

    def _part_random_numbers(self) -> None:
        """Until here all ranks draw the same, to build the same model; then they differ."""
        if not self._has_parted and self._world.size > 1 and self.step == 0:
            rng.seed_all(rng.mix(self.seed, self._rank))
        self._has_parted = True

    def _is_finished(self) -> bool:
        return self.max_steps is not None and self.step >= self.max_steps

    def _boundary(self, may_save: bool = True) -> None:
        if self.step >= self._next_look or self.step == self._next_save_step:
            self._look(may_save)

    def _look(self, may_save: bool = True) -> None:
        """Agree with the other ranks on what happens after this step, and do it.

        The save after the last step of an epoch is delayed until the script has finished that
        epoch, because the values it logs there belong to these weights.
        """
        now = time.monotonic()
        steps, seconds = self.step - self._looked_at[0], now - self._looked_at[1]
        minutes = self._policy.every_minutes
        agreed = self._agree(
            Wish(
                stop=self._stop_reason is not None,
                save=minutes is not None and now - self._saved_at >= 60 * minutes,
                is_saving=self._checkpointer.is_saving,
                failed_save=self._checkpointer.failed_save,
                steps_between=steps_between_looks(self._steps_between, seconds, steps),
            )
        )
        self._steps_between = agreed.steps_between
        self._next_look = self.step + agreed.steps_between
        self._checkpointer.failed_save_anywhere = agreed.failed_save
        if agreed.stop:
            raise Interrupted(self._stop_reason or "stopped with another rank", self.step)
        self._checkpointer.check_once()
        if self.step == self._next_save_step and self._policy.every_steps:
            self._next_save_step = next_multiple(self.step, self._policy.every_steps)
            self._save_is_due = True
        self._save_is_due = self._save_is_due or agreed.save
        can_save = may_save and not agreed.is_saving and self._checkpointer.holds_anything
        if self._save_is_due and can_save:
            self._save_is_due = False
            self._saved_at = time.monotonic()
            self._checkpointer.begin(self._moment())
        self._looked_at = (self.step, time.monotonic())

    def _agree(self, wish: Wish) -> Wish:
        return Wish.from_vector(self._world.largest(wish.to_vector()))

    def _moment(self) -> Moment:
        return Moment(self.step, self._epoch, self._batches)

    # The end

    def _finish(self, seconds: float, is_complete: bool) -> None:
        self._state = "checkpointing" if is_complete else "stopping"
        if self._checkpointer.holds_anything:
            self._checkpointer.finish(self._moment(), seconds)
        self._reporter.settle()
        if self._rank == 0 and (is_complete or not self._environment.is_local):
            results.write(self._environment.directory, self.step, self._reporter.last_and_best)

    def _seconds_to_stop(self) -> float:
        """How long the final checkpoint may take: most of the time until the notice's deadline."""
        with suppress(OSError, ValueError):
            notice = StopNotice.model_validate_json(
                (self._environment.directory / "stop.json").read_bytes()
            )
            return 0.8 * notice.deadline_seconds
        return _STOP_SAVE_SECONDS

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop_reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop_reason = signal.Signals(number).name
        if self._world.size == 1:
            self._next_look = 0  # no other ranks: stop after this step

    def _progress(self) -> StepProgress:
        is_saving = self._state == "training" and self._checkpointer.is_saving
        return StepProgress(
            step=self.step,
            max_steps=self._total_steps,
            epoch=self._epoch,
            state="checkpointing" if is_saving else self._state,
            num_dropped=self._reporter.num_dropped,
        )


class Epoch:
    """One pass over the data. `index` counts from 0."""

    def __init__(self, run_: Run, index: int, count: int) -> None:
        self.index = index
        self._run = run_
        self._count = count
        self._has_begun = False

    def steps(self, loader: Iterable[Any], accumulate: int | None = None) -> Iterator[Any]:
        """Batches of this pass, one optimizer step each; or lists of `accumulate` batches."""
        if self._has_begun:
            raise DrivetrainError(
                "epoch.steps() can be called once per epoch, because a checkpoint stores one "
                "position in the data: chain the loaders into one, or use one epoch for each pass"
            )
        if accumulate is not None and accumulate < 1:
            raise ValueError("accumulate: write at least 1")
        self._has_begun = True
        run_ = self._run
        source = BatchSource(loader, run_.world_size, run_.seed, run_.rank)
        if run_.max_steps is None and source.num_batches is not None:
            run_._total_steps = -(-source.num_batches // (accumulate or 1)) * self._count
        if accumulate is None:
            return run_._pass(source)
        return run_._pass_accumulated(source, accumulate)
