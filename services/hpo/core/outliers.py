"""Losses of trials that diverged: how large one may be before it counts as if it were smaller."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Larger losses count as this one, and smaller ones as its negative, so that squares are finite.
LARGEST = 1e100
# What is that many times as far from a usual loss as this is from the best is an outlier.
_FAR = 10.0
_FEWEST_FIRST, _NUM_FIRST = 8, 16
# Beyond a gap that is so many times as wide as what lies before it, there is nothing usual.
_GAP = 100.0
_FEWEST_BEFORE, _NUM_SEARCHED = 3, 24


def largest_that_counts(losses: Array) -> float:
    """Larger losses tell no more than this one: that training diverged. Never above `LARGEST`.

    Where some are thousands of times as large as others, a model of all of them sees no difference
    between the good ones. The usual loss is taken from the first trials: later ones lie close
    together. It lies before the first wide gap, for most of the first trials may have diverged.
    """
    finite = losses[np.isfinite(losses)]
    if len(finite) < _FEWEST_FIRST:
        return LARGEST
    first = sorted(finite[:_NUM_FIRST].tolist())
    usual, best = first[len(first) * 2 // 5], float(finite.min())
    searched = bounded(np.sort(finite[:_NUM_SEARCHED])[_FEWEST_BEFORE - 1 :])
    far = searched - max(best, -LARGEST)
    gaps = np.flatnonzero((far[:-1] > 0.0) & (far[1:] / _GAP > far[:-1]))
    if len(gaps):
        usual = min(usual, float(searched[gaps[0]]))
    return min(usual + _FAR * (usual - best), LARGEST) if usual > best else LARGEST


def bounded(losses: Array, largest: float = LARGEST) -> Array:
    """As they count; NaN stays."""
    values: Array = np.maximum(np.minimum(losses, largest), -LARGEST)
    return values
