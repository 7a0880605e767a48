"""The iterators behind `run.steps` and `run.epochs`: one iteration is one optimizer step.

What happens between two steps (drivetrain.boundary) happens in the iterator's next call. A step
that `break` has ended gets its boundary where the next pass starts.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from drivetrain.boundary import AfterSteps, Boundary
from drivetrain.divided_data import require_divided
from drivetrain.epoch import Epoch
from drivetrain.errors import DrivetrainError
from drivetrain.loading import BatchSource
from drivetrain.parallel import Accumulation, World
from drivetrain.progress import Progress


class Loop:
    """The loop of one run, on one rank.

    `before_training` is called once, before the first step of this attempt; `before_steps` each
    time that an iterator over steps starts.
    """

    def __init__(
        self,
        progress: Progress,
        world: World,
        boundary: Boundary,
        before_training: Callable[[], None],
        before_steps: Callable[[], None],
    ) -> None:
        self.progress = progress
        self._world = world
        self._boundary = boundary
        self._before_training = before_training
        self._before_steps = before_steps
        self.has_begun = False
        self._is_divided = False
        self._is_within_step = False  # of an iterator, which the script has not asked to go on

    def steps(self, loader: Iterable[Any] | None) -> Iterator[Any]:
        steps = self._count() if loader is None else self._rounds(loader)
        return chain(steps, AfterSteps(self._boundary))

    def epochs(self, count: int) -> Iterator[Epoch]:
        return chain(self._passes(count), AfterSteps(self._boundary))

    def epoch_steps(
        self, loader: Iterable[Any], accumulate: int | None, num_epochs: int
    ) -> Iterator[Any]:
        progress, source = self.progress, self._source(loader)
        if progress.max_steps is None and source.num_batches is not None:
            progress.total_steps = -(-source.num_batches // (accumulate or 1)) * num_epochs
        if accumulate is None:
            steps = self._pass(source)
        else:
            steps = self._pass_accumulated(source, accumulate)
        return chain(steps, AfterSteps(self._boundary))

    def end_own_step(self) -> int:
        """The script's own loop has ended a step: its number. `pass_boundary` is to follow."""
        self._boundary.raise_again()
        if self._is_within_step:
            raise DrivetrainError(
                "advance() would count this step twice: the iterator of steps() ends each step"
                " itself. Leave advance() out"
            )
        self._begin()
        self.progress.keep_random_numbers()
        self.progress.step += 1
        return self.progress.step

    def pass_boundary(self, may_save: bool = True) -> None:
        if self.progress.step >= self._boundary.due_at:
            self._boundary.look(may_save)

    def _count(self) -> Iterator[int]:
        progress = self.progress
        self._start()
        while not progress.is_finished:
            progress.step += 1
            self._is_within_step = True
            try:
                yield progress.step
            finally:
                self._is_within_step = False
            self.pass_boundary()

    def _rounds(self, loader: Iterable[Any]) -> Iterator[Any]:
        progress, source = self.progress, self._source(loader)
        while not progress.is_finished:
            before, skipped = progress.step, progress.batches
            yield from self._pass(source, is_epoch=False)
            if progress.step == before and not skipped:
                raise DrivetrainError(_describe_no_batch(source))
            if progress.is_finished:
                return
            progress.end_pass()

    def _passes(self, count: int) -> Iterator[Epoch]:
        progress = self.progress
        while progress.epoch < count and not progress.is_finished:
            self._boundary.raise_again()
            self._begin()
            progress.start_epoch()
            yield Epoch(self, progress.epoch, count)
            self._boundary.raise_again()
            progress.end_pass()
            if self._boundary.awaits_end_of_pass:
                self._boundary.look()
            else:
                self.pass_boundary()  # of a step that `break` has ended

    def _pass(self, source: BatchSource, is_epoch: bool = True) -> Iterator[Any]:
        progress = self.progress
        batches = self._start_pass(source)
        for batch in () if progress.is_finished else batches:
            progress.take(1)
            self._is_within_step = True
            try:
                yield batch
            finally:
                self._is_within_step = False
            self.pass_boundary(may_save=not (is_epoch and progress.batches == source.num_batches))
            if progress.is_finished:
                return
        if is_epoch and not progress.batches and source.is_read_once:
            raise DrivetrainError(_describe_no_batch(source))

    def _pass_accumulated(self, source: BatchSource, accumulate: int) -> Iterator[Accumulation]:
        progress = self.progress
        batches = self._start_pass(source)
        while not progress.is_finished:
            chunk = Accumulation(islice(batches, accumulate), self._world.replicas)
            if not len(chunk):
                if not progress.batches and source.is_read_once:
                    raise DrivetrainError(_describe_no_batch(source))
                return
            progress.take(len(chunk))
            self._is_within_step = True
            try:
                yield chunk
            finally:
                self._is_within_step = False
            self.pass_boundary(may_save=progress.batches != source.num_batches)

    def _source(self, loader: Iterable[Any]) -> BatchSource:
        return BatchSource(loader, self._world.size, self.progress.seed, self._world.rank)

    def _start_pass(self, source: BatchSource) -> Iterator[Any]:
        progress = self.progress
        progress.start_pass(source)
        batches = source.start_pass(progress.epoch, progress.batches)
        self._start()
        if self._world.size > 1 and not self._is_divided:
            self._is_divided = True
            return require_divided(batches, self._world)
        return batches

    def _start(self) -> None:
        self._boundary.raise_again()
        if self._is_within_step:
            raise DrivetrainError(
                "steps() inside of a step: each of its iterations would count as a training step."
                " Loop over the loader itself, as in `for x, y in validation_loader:`"
            )
        self.pass_boundary()  # of a step that `break` has ended
        self._begin()
        self._before_steps()
        self.progress.restore_random_numbers()

    def _begin(self) -> None:
        if not self.has_begun:
            self._before_training()
            self.has_begun = True
            self.progress.part_random_numbers()


def _describe_no_batch(source: BatchSource) -> str:
    if source.is_read_once:
        return (
            "the loader gave no batch: a generator or another iterator can be read only once; pass"
            " a list, a DataLoader, an object whose __iter__ starts again, or a new one each epoch"
        )
    return "the loader is empty"
