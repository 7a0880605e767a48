"""One pass over the data, as `run.epochs` gives it to the script."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from drivetrain.errors import DrivetrainError

if TYPE_CHECKING:
    from drivetrain.loop import Loop


class Epoch:
    """One pass over the data. `index` counts from 0."""

    def __init__(self, loop: "Loop", index: int, count: int) -> None:
        self.index = index
        self.count = count
        self._loop = loop
        self._has_begun = False

    @property
    def position(self) -> int:
        """The number of batches of this pass that came before the current ones.

        In place of `enumerate`, which starts at 0 again when a run resumes within the pass.
        """
        return self._loop.progress.position

    def state(self, **begin: Any) -> SimpleNamespace:
        """As `run.state`, for this pass alone: what is summed up in it, to be called before it."""
        state = self._loop.progress.epoch_state
        vars(state).update({**begin, **vars(state)})
        return state

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
        return self._loop.epoch_steps(loader, accumulate, self.count)
