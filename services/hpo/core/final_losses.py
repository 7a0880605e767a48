"""What a trial's value at a rung says about its final loss, by the trials that are complete.

A straight line from losses at the rung to final losses. While few trials are complete the line is
drawn towards the slope 1, and its error towards half the spread of the losses at the rung. It is
flat where losses at the rung would have predicted the final ones no better than their mean does.
Its error is at least what a line through the others misses of the best one: the next best trial may
come as unforeseen.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from services.hpo.core.outliers import bounded, scale_of
from services.hpo.core.trials import Array, Trials, TrialState

# Of the complete trials the last ones: enough for a line, and a bound on the time.
_MAX_PAIRS = 128
# How many complete trials the assumptions above are worth.
_PRIOR_PAIRS = 4.0
# With so many it is seen whether the line would have predicted them.
_FEWEST_COMPARED = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A final loss is about `final + slope * (loss at the rung - middle)`, give or take `error`."""

    slope: float
    middle: float
    final: float
    error: float

    def expected(self, losses: Array) -> Array:
        """Final losses, of losses at the rung."""
        return self.final + self.slope * (bounded(losses) - self.middle)

    def chance(self, loss: float, best: float) -> float:
        """How likely it is that a trial with this loss at the rung ends below `best`."""
        expected = float(self.expected(np.array(loss)))
        if self.error == 0.0:
            return 1.0 if expected < best else 0.0
        return float(ndtr((best - expected) / self.error))


def line(trials: Trials, step: int) -> Line:
    pairs = _pairs(trials, step)
    ranked = trials.rung(step).ranked
    # The better half: bad losses at a rung may be far away.
    better = [loss for loss, _ in ranked[: max(2, len(ranked) // 2)]]
    spread = float(np.std(bounded(np.array(better)))) if better else 0.0
    if not len(pairs):
        return Line(1.0, 0.0, 0.0, spread / 2.0)
    middle, final = pairs.mean(axis=0)
    at_rung, at_end = (pairs - (middle, final)).T
    weight = _PRIOR_PAIRS * spread**2
    total = at_rung @ at_rung + weight
    slope = max(float((at_rung @ at_end + weight) / total), 0.0) if total > 0.0 else 0.0
    missed, num, unforeseen = at_end - slope * at_rung, len(pairs), 0.0
    if slope > 0.0 and num >= _FEWEST_COMPARED:
        # Of each pair, what a line through the others misses, against what their mean does.
        by_line = missed / np.maximum(1.0 - 1.0 / num - at_rung * at_rung / total, 1e-9)
        by_mean = at_end / (1.0 - 1.0 / num)
        if np.abs(by_line).sum() >= np.abs(by_mean).sum():
            slope = 0.0
        unforeseen = -float(by_line[np.argmin(at_end)])
    if slope == 0.0:
        return Line(0.0, float(middle), float(final), float(at_end.std()))
    squares = float(missed @ missed) + weight / 4.0
    error = math.sqrt(squares / (num + _PRIOR_PAIRS))
    return Line(slope, float(middle), float(final), max(error, unforeseen))


def with_expected(trials: Trials, losses: Array) -> Array:
    """The losses, and what is expected of trials that were measured and are not complete.

    Of none at a rung whose losses tell nothing: a mean is no result of the trial's place.
    """
    curves = trials.curves
    open_ones = np.isnan(losses) & ~np.isnan(curves[:, 1])
    filled = losses.copy()
    for step in np.unique(curves[open_ones, 1]):
        there = open_ones & (curves[:, 1] == step)
        found = line(trials, int(step))
        if found.slope > 0.0:
            filled[there] = found.expected(curves[there, 2])
    return filled


def _pairs(trials: Trials, step: int) -> Array:
    """(n, 2): the loss at the rung and the final one, of complete trials without outliers."""
    pairs = []
    for number in heapq.nlargest(_MAX_PAIRS, trials.in_state(TrialState.COMPLETED)):
        measured, loss = trials[number].at(step), trials.losses[number]
        if measured is not None and measured.value is not None and np.isfinite(loss):
            pairs.append((trials.loss_of(measured.value), float(loss)))
    if not pairs:
        return np.empty((0, 2))
    # In order of number: which losses are outliers follows from the first ones.
    columns = np.array(pairs[::-1]).T
    counts = np.all([column <= scale_of(column).largest for column in columns], axis=0)
    return bounded(columns[:, counts].T)
