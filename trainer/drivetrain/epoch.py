"""One pass over the data, as `run.epochs` gives it to the script."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from drivetrain.errors import DrivetrainError
from drivetrain.loading import BatchSource

if TYPE_CHECKING:
    from drivetrain.training import Run


class Epoch:
    """One pass over the data. `index` counts from 0."""

    def __init__(self, run: "Run", index: int, count: int) -> None:
        self.index = index
        self.count = count
        self._run = run
        self._has_begun = False

    @property
    def position(self) -> int:
        """The number of batches of this pass that came before the current ones.

        In place of `enumerate`, which starts at 0 again when a run resumes within the pass.
        """
        return self._run._position

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
        run = self._run
        source = BatchSource(loader, run.world_size, run.seed, run.rank)
        return run._epoch_steps(source, accumulate, self.count)
