"""How losses count where trials diverge: up to which one, and on what scale."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Larger losses count as this one, and smaller ones as its negative, so that squares are finite.
LARGEST = 1e100
# What is that many times as far from a usual loss as this is from the best is an outlier.
_FAR = 10.0
_FEWEST_FIRST, _NUM_FIRST = 8, 16
# Beyond a gap that is so many times as wide as what lies before it, there is nothing usual.
_GAP, _FEWEST_BEFORE = 100.0, 3
# The first trials among which it is looked for; more of them where losses are spread.
_NUM_SEARCHED, _NUM_SEARCHED_SPREAD = 24, (48, 96)
# Losses are spread where the worse ones of the first trials are so many times as far from the best
# as the better ones are, or a usual one so many times as far as the best tenth of all.
_SPREAD, _SPREAD_LATER = 10.0, 1000.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Losses count up to `largest`; where they are spread, by the logarithm of how far they are
    above the best, with little difference below `floor`."""

    largest: float = LARGEST
    floor: float | None = None


def scale_of(losses: Array) -> Scale:
    """Where some are thousands of times as large as others, a model of all of them sees no
    difference between the good ones. The usual loss is taken from the first trials: later ones lie
    close together. It lies before the first wide gap, for most of the first may have diverged.
    """
    finite = losses[np.isfinite(losses)]
    if len(finite) < _FEWEST_FIRST:
        return Scale()
    best = max(float(finite.min()), -LARGEST)
    first = bounded(np.sort(finite[:_NUM_FIRST])) - best
    better, usual, worse = (float(first[len(first) * part // 20]) for part in (5, 8, 15))
    rank = max(2, len(finite) // 10)
    good = float(bounded(np.partition(finite, rank)[rank])) - best
    before = _before_gap(finite[:_NUM_SEARCHED], best)
    is_spread = worse / _SPREAD > better > 0.0 and not usual <= before < worse
    is_spread = is_spread or usual / _SPREAD_LATER > good > 0.0
    floor = min(usual / _SPREAD_LATER, good) if is_spread else None
    for num in _NUM_SEARCHED_SPREAD if is_spread else ():
        before = before if math.isfinite(before) else _before_gap(finite[:num], best)
    usual = min(usual, before)
    largest = min(best + (1.0 + _FAR) * usual, LARGEST) if usual > 0.0 else LARGEST
    return Scale(largest, floor or None)


def _before_gap(losses: Array, best: float) -> float:
    """How far above the best the first wide gap begins; infinite: there is none."""
    far = bounded(np.sort(losses)[_FEWEST_BEFORE - 1 :]) - best
    gaps = np.flatnonzero((far[:-1] > 0.0) & (far[1:] / _GAP > far[:-1]))
    return float(far[gaps[0]]) if len(gaps) else math.inf


def bounded(losses: Array, largest: float = LARGEST) -> Array:
    """As they count; NaN stays."""
    values: Array = np.maximum(np.minimum(losses, largest), -LARGEST)
    return values
