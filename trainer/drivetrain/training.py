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
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from drivetrain import environment as environments
from drivetrain import hyperparameters as hyper
from drivetrain import local_runs, preparation, results
from drivetrain.attribution import Attribution
from drivetrain.boundary import Boundary
from drivetrain.checkpointing import Checkpointer
from drivetrain.environment import Environment
from drivetrain.epoch import Epoch
from drivetrain.errors import (
    EXIT_INTERRUPTED,
    CheckpointWriteFailed,
    DrivetrainError,
    Interrupted,
)
from drivetrain.loop import Loop
from drivetrain.media_logging import MediaLogging, open_media
from drivetrain.messages import StepProgress
from drivetrain.parallel import World
from drivetrain.progress import Progress
from drivetrain.reporting import Reporter
from drivetrain.seeding import Seeds
from drivetrain.stopping import StopRequest
from drivetrain.storage import open_storage
from drivetrain.surroundings import Description
from drivetrain.telling import Telling
from drivetrain_schemas import placeholders
from drivetrain_schemas.jobs import CheckpointPolicy

if TYPE_CHECKING:
    import torch

_FINAL_SAVE_SECONDS = 120.0
_FLUSH_SECONDS = 5.0
_DESCRIBE_SECONDS = 2.0
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
    in_command: tuple[str, ...] = ()
    if (job := environment.job) is not None:
        overrides = job.hyperparameters
        in_command = placeholders.used(job.command)
        max_steps = job.max_steps or max_steps
        seed = seed if job.seed is None else job.seed
        if job.checkpoint.every_steps or job.checkpoint.every_minutes:
            policy = job.checkpoint
    if max_steps is not None and max_steps < 1:
        raise DrivetrainError(f"max_steps={max_steps}: write at least 1, or leave it out")
    values = hyper.merge(hyperparameters or {}, overrides, in_command)
    return Run(environment, values, max_steps, seed, policy)


class Run(MediaLogging, Telling, AbstractContextManager["Run"]):
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
        self._state = "training"
        self._is_entered = False
        self._has_resumed = False
        preparation.log_to_stderr()
        self._world = World(environment)
        self._seeds = seeds = Seeds(seed, self._world.share)
        self.seed = seeds.seed
        self._progress = Progress(self._world, seeds, max_steps)
        self._environment = environment = preparation.settle_local(
            environment, self._world, local_runs.this_experiment(hyperparameters, seed)
        )
        self._rank = environment.rank
        self._judged_metric = environment.judged_metric
        if self._rank == 0:
            _logger.info(seeds.describe())
        self._reporter = Reporter(
            environment,
            preparation.open_sink(environment),
            preparation.make_last_and_best(environment),
            self._step_progress,
            self._world.own_work.take,
        )
        self._media = open_media(environment, self._reporter)
        self._description = Description(
            environment, self.seed, hyperparameters, self._reporter.send
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
        self._boundary = Boundary(
            self._world, self._checkpointer, policy, self._stop, self._progress.moment
        )
        self._loop = Loop(
            self._progress,
            self._world,
            self._boundary,
            self._before_training,
            self._before_steps,
        )
        # Where the step of a value is not simply `step`: before the loop, and in a script's own.
        self._attribution: Attribution | None = Attribution(self._log_at, self._warn_of_no_step)

    @property
    def step(self) -> int:
        return self._progress.step

    @property
    def max_steps(self) -> int | None:
        return self._progress.max_steps

    @max_steps.setter
    def max_steps(self, value: int | None) -> None:
        self._progress.max_steps = value

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
        if self._loop.has_begun:
            raise DrivetrainError(
                "resume() comes before the loop: within it, a restart would begin at step 0 and"
                " then jump to the checkpoint"
            )
        self._checkpointer.hold(things)
        self._has_resumed = True
        self._seeds.look_again()  # before the stored random numbers replace the script's
        moment = self._checkpointer.restore()
        if moment is None:
            self._progress.part_random_numbers()
            return False
        self._progress.continue_from(moment)
        self._boundary.start_at(self.step)
        return True

    def state(self, **begin: Any) -> SimpleNamespace:
        """Values that checkpoints hold, as attributes: `begin`, or those of the step resumed at."""
        if not self._has_resumed:
            raise DrivetrainError("run.state() comes after run.resume(), which restores the values")
        self._checkpointer.holds_anything = True
        state = self._progress.state
        vars(state).update({**begin, **vars(state)})  # what is there stays as it is
        return state

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Log values of this step. Costs half a microsecond; never blocks, never fails.

        Only values of rank 0 are used. Values may be tensors: one on the CPU is read at once, one
        on a device is copied there and read later, without waiting for the device.
        """
        if self._rank:
            return
        if values:
            named = {**values, **named}
        if self._attribution is None:  # as _log_at does it, without the call
            step = self._progress.step
            self._reporter.log(step, named)
            if self._judged_metric in named:
                self._boundary.judged(step)
        else:
            self._require_block()
            self._attribution.log(self.step, named)

    def use_data(self, path_or_uri: "str | os.PathLike[str]", version: str | None = None) -> None:
        """Record which data this run uses; of what is on this machine, its checksum too.

        It is not read or copied: a file is hashed by another thread, of a directory the names and
        sizes are. `version` has at most 300 characters.
        """
        if self._rank == 0:
            problem = self._description.use_data(path_or_uri, version)
            if problem is not None:
                self._reporter.warn("much_data", problem)

    def steps(self, loader: Iterable[Batch] | None = None) -> Iterator[Any]:
        """Batches of the loader, repeated until max_steps; without a loader, step numbers.

        A range is passed over once where there is no max_steps.
        """
        self._require_block()
        if self.max_steps is None and isinstance(loader, range) and loader:
            self._progress.max_steps = self._progress.total_steps = len(loader)
        if self.max_steps is None:
            raise DrivetrainError("steps() ends at max_steps: set it in drivetrain.run or the job")
        return self._loop.steps(loader)

    def epochs(self, count: int) -> Iterator[Epoch]:
        """The remaining passes over the data, out of `count`."""
        self._require_block()
        return self._loop.epochs(count)

    def advance(self) -> None:
        """Mark the end of one optimizer step, in a loop of the script's own.

        Such a loop starts at `resume`, which has already restored the random numbers.
        """
        self._require_block()
        step = self._loop.end_own_step()
        if self._attribution is not None:
            self._attribution.advanced(step)
            self._boundary.logs_after = self._rank == 0 and self._attribution.logs_after
        try:
            self._loop.pass_boundary()
        except Interrupted:
            # The checkpoint is written. The values of this step are yet to be logged; what is
            # trained until the next call, which ends the run, is done again by the next attempt.
            if not self._boundary.logs_after:
                raise

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
            self._attribution = Attribution(self._log_at, self._warn_of_no_step)  # log() looks
            if self._rank == 0 and not self._description.has_begun:
                self._description.begin()
            self._description.close(_DESCRIBE_SECONDS)
            if self._media is not None:
                self._media.close(_FLUSH_SECONDS)
            self._reporter.close(_FLUSH_SECONDS)
            self._stop.restore()
        if interrupted is not None:
            raise SystemExit(EXIT_INTERRUPTED) from None

    def _before_training(self) -> None:
        self._require_block()
        if self._rank == 0 and not self._description.has_begun:
            self._description.begin()
        if not self._checkpointer.holds_anything and self._rank == 0:
            self._reporter.warn(
                "no_resume",
                "no checkpoint will be written, and a restart begins at step 0: name the state to"
                " save before the loop, as in run.resume(model=model, optimizer=optimizer)",
            )

    def _before_steps(self) -> None:
        if self._attribution is not None:
            self._attribution.release(self.step)
            self._attribution = None

    def _require_block(self) -> None:
        if not self._is_entered:
            raise DrivetrainError(
                "outside of its block a run saves and reports nothing: write"
                " `with drivetrain.run(...) as run:` around the loop"
            )

    def _log_at(self, step: int, named: Mapping[str, Any]) -> None:
        self._reporter.log(step, named)
        if self._judged_metric in named:
            self._boundary.judged(step)

    def _hurry(self) -> None:
        self._boundary.hurry()

    # The end

    def _interruption(self, error: BaseException | None) -> Interrupted | None:
        """Whether the run ends as interrupted, even if the script swallowed the exception."""
        if isinstance(error, CheckpointWriteFailed | KeyboardInterrupt):
            return None
        return error if isinstance(error, Interrupted) else self._boundary.interrupted

    def _complete(self) -> None:
        self._state = "checkpointing"
        if self._checkpointer.holds_anything:
            self._checkpointer.finish(self._progress.moment(), _FINAL_SAVE_SECONDS)
        self._reporter.settle()
        if self._rank == 0:
            _logger.info("complete after step %d", self.step)
            self._warn_of_the_end()
            if unsaved := self._reporter.last_and_best.unsaved_best():
                _logger.info("%s", unsaved)
            self._write_result()

    def _stop_here(self, interrupted: Interrupted, error: BaseException | None) -> None:
        is_awaited = error is None and self._boundary.logs_after  # the next advance()
        if error is not interrupted and not is_awaited:
            what = f" to {type(error).__name__}: {error!s:.200}" if error else ""
            self._reporter.warn(
                "caught_stop",
                f"the script caught the request to stop and went on{what}; the checkpoint is of"
                f" step {interrupted.step}, where it was made",
            )
        self._boundary.save_interrupted(self._progress.moment())
        self._reporter.settle()
        if self._rank == 0 and not self._environment.is_local:
            self._write_result()
        _logger.info("interrupted: %s", interrupted)

    def _warn_of_the_end(self) -> None:
        values = self._reporter.last_and_best
        if self.step == 0 and not self._reporter.has_warned("no_steps"):
            self._reporter.warn(
                "no_steps",
                "the run ends without a step, so nothing was saved on the way: loop over"
                " run.steps(...), or call run.advance() after each optimizer step",
            )
        if values.metric is not None and values.best is None:
            names = ", ".join(map(repr, sorted(values.last)[:10])) or "nothing"
            self._reporter.warn(
                "metric_missing",
                f"the job's metric {values.metric!r} has no value; the program has logged {names}",
            )

    def _write_result(self) -> None:
        seed = results.used_seed(self._seeds)
        values = self._reporter.last_and_best
        results.write(self._environment.directory, self.step, values, seed)

    def _warn_of_no_step(self) -> None:
        self._reporter.warn(
            "no_steps",
            "run.log was called again and again at step 0, and of each name only the last value is"
            " kept: loop over run.steps(...), or call run.advance() after each optimizer step",
        )

    def _step_progress(self) -> StepProgress:
        state = self._state
        if self._boundary.interrupted is not None:
            state = "stopping"
        elif state == "training" and self._checkpointer.is_saving:
            state = "checkpointing"
        return StepProgress(
            step=self.step,
            max_steps=self._progress.total_steps,
            epoch=self._progress.epoch,
            state=state,
            num_dropped=self._reporter.num_dropped,
            num_refused=self._reporter.num_refused,
        )


def _is_clean_exit(error: BaseException) -> bool:
    """`sys.exit()` and `sys.exit(0)`: the script ends early, and is content."""
    return isinstance(error, SystemExit) and error.code in (None, 0)
