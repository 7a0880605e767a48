"""Where a model of the losses looks for the next point: everywhere, then around the best places."""

from collections.abc import Callable

import numpy as np

from services.hpo.core.space import Space
from services.hpo.core.trials import Array

# Of the spread of steps, as a factor: exp of these bounds.
_NARROWEST, _WIDEST = -2.5, 0.5
# Places that the later rounds start from.
_NUM_STARTS = 4


class Candidates:
    """Rows of units to look at; all randomness comes from the generator that is given."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._sizes = np.array([each.num_choices for each in space.dimensions], dtype=int)

    def spread(self, rng: np.random.Generator, num: int) -> Array:
        return self._space.snap(rng.random((num, len(self._sizes))))

    def around(self, rng: np.random.Generator, rows: Array, num: int, scale: float) -> Array:
        """Some or all dimensions of each row are moved, by steps of very different lengths."""
        num_dimensions = len(self._sizes)
        start = np.where(np.isnan(rows), 0.5, rows)[np.arange(num) % len(rows)]
        length = scale * np.exp(rng.uniform(_NARROWEST, _WIDEST, (num, 1)))
        share = np.where(rng.random((num, 1)) < 0.5, 1.0, 2.0 / num_dimensions)
        moves = rng.random((num, num_dimensions)) < share
        moves[np.arange(num), rng.integers(num_dimensions, size=num)] = True
        moved = np.abs(start + length * rng.normal(size=start.shape) * moves)
        moved = np.maximum(np.where(moved > 1.0, 2.0 - moved, moved), 0.0)
        if self._sizes.any():
            other = rng.random(start.shape)
            changes = moves & (rng.random(start.shape) < 0.5)
            moved = np.where(self._sizes > 0, np.where(changes, other, start), moved)
        return self._space.snap(moved)

    def best(
        self,
        rng: np.random.Generator,
        starts: Array,
        score: Callable[[Array], Array],
        sizes: tuple[int, int, int, int],
    ) -> Array:
        """Candidates by falling score. `sizes`: of the spread ones and of three rounds."""
        rows = np.vstack([self.spread(rng, sizes[0]), self.around(rng, starts, sizes[1], 0.3)])
        scores = score(rows)
        for size, scale in zip(sizes[2:], (0.1, 0.03), strict=True):
            top = np.argsort(-scores, kind="stable")[:_NUM_STARTS]
            more = self.around(rng, rows[top], size, scale)
            rows, scores = np.vstack([rows, more]), np.concatenate([scores, score(more)])
        return rows[np.argsort(-scores, kind="stable")]
