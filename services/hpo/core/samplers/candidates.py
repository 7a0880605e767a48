"""Where a model of the losses looks for the next point: everywhere, then around the best places."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.space import Space
from services.hpo.core.trials import Array

# Of the spread of steps, as a factor: exp of these bounds.
_NARROWEST, _WIDEST = -2.5, 0.5
# How far the steps of the rounds go.
_SCALES = (0.3, 0.1, 0.03)
# Places that the later rounds start from.
_NUM_STARTS = 4


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps from places (n, d): how far each dimension moves, and new values of choices."""

    lengths: Array
    changes: NDArray[np.bool_] | None
    values: Array | None


class Candidates:
    """Rows of units to look at; all randomness comes from the generator that is given."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._is_choice = np.array([each.num_choices > 0 for each in space.dimensions])

    def best(
        self,
        rng: np.random.Generator,
        starts: Array,
        score: Callable[[Array], Array],
        sizes: tuple[int, int, int, int],
    ) -> Array:
        """Candidates by falling score. `sizes`: of the spread ones and of three rounds."""
        steps = self._steps(rng, sizes[1:])
        rows = np.vstack(
            [
                rng.random((sizes[0], len(self._is_choice))),
                self._moved(steps, np.where(np.isnan(starts), 0.5, starts), 0, sizes[1]),
            ]
        )
        rows = self._space.snap(rows)
        scores = score(rows)
        first = sizes[1]
        for size in sizes[2:]:
            top = rows[np.argsort(-scores, kind="stable")[:_NUM_STARTS]]
            top = np.where(np.isnan(top), 0.5, top)
            more = self._space.snap(self._moved(steps, top, first, first + size))
            rows, scores = np.concatenate([rows, more]), np.concatenate([scores, score(more)])
            first += size
        return rows[np.argsort(-scores, kind="stable")]

    def _steps(self, rng: np.random.Generator, sizes: tuple[int, ...]) -> _Steps:
        """Some or all dimensions of a row are moved, by steps of very different lengths."""
        num, num_dimensions = sum(sizes), len(self._is_choice)
        drawn = rng.random((num, 3 + num_dimensions))
        lengths = np.repeat(_SCALES, sizes) * np.exp(
            _NARROWEST + (_WIDEST - _NARROWEST) * drawn[:, 0]
        )
        share = np.where(drawn[:, 1] < 0.5, 1.0, 2.0 / num_dimensions)
        moves = drawn[:, 3:] < share[:, None]
        moves[np.arange(num), (drawn[:, 2] * num_dimensions).astype(int)] = True
        far = rng.standard_normal((num, num_dimensions)) * moves * lengths[:, None]
        if not self._is_choice.any():
            return _Steps(far, None, None)
        changes = moves & self._is_choice & (rng.random(moves.shape) < 0.5)
        return _Steps(np.where(self._is_choice, 0.0, far), changes, rng.random(moves.shape))

    def _moved(self, steps: _Steps, rows: Array, first: int, last: int) -> Array:
        """The steps from `first` to `last`, from these rows in turn; bounds reflect."""
        moved = np.abs(rows[np.arange(last - first) % len(rows)] + steps.lengths[first:last])
        moved = np.maximum(np.minimum(moved, 2.0 - moved), 0.0)
        if steps.changes is None or steps.values is None:
            return moved
        return np.where(steps.changes[first:last], steps.values[first:last], moved)
