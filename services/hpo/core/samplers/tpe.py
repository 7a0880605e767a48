"""Tree-structured Parzen estimator (Bergstra et al. 2011), over all dimensions at once.

The best tenth of the trials and the others are each described by a density: a mixture with one
kernel around each trial and a wide one over the whole space. Points are drawn from the density of
the good ones; the point is tried at which it exceeds the other density most. Trials that run
count as not good, so that parallel trials do not all go to one place.
"""

import math

import numpy as np
from scipy.special import ndtr, ndtri

from services.hpo.core.samplers import random
from services.hpo.core.samplers.proposing import Draws, at_random, first_new, is_among_best
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array, Trials

_NUM_RANDOM = 10
_NUM_CANDIDATES = 24
_GOOD_SHARE, _MAX_GOOD = 0.1, 25
# Of the others: more of them change the density no further, and cost time.
_MAX_OTHERS = 1000


class Tpe:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._space, self._seed = space, seed
        self._draws = Draws("tpe", seed)
        self._sizes = np.array([each.num_choices for each in space.dimensions], dtype=int)

    def propose(self, trials: Trials, number: int) -> Proposal:
        losses = trials.losses_for(number)
        ended = np.flatnonzero(np.isfinite(losses))
        if len(ended) < _NUM_RANDOM or not len(self._sizes):
            first = random.propose(self._space, self._seed, number)
            return Proposal(first, "drawn at random, to begin with")
        units, tried = trials.units, len(trials)
        num_good = min(math.ceil(_GOOD_SHARE * len(ended)), _MAX_GOOD)
        best = ended[is_among_best(losses[ended], num_good)]
        best = best[np.argsort(losses[best], kind="stable")]
        is_other = np.ones(tried, dtype=bool)
        is_other[best] = False
        others = np.flatnonzero(is_other)
        if len(others) > _MAX_OTHERS:
            others = others[np.linspace(0, len(others) - 1, _MAX_OTHERS).astype(int)]
        rng = self._draws.of(number)
        good = Density(units[best], self._sizes)
        candidates = self._space.snap(good.draw(rng, _NUM_CANDIDATES))
        score = good.log(candidates) - Density(units[others], self._sizes).log(candidates)
        order = np.argsort(-score, kind="stable")
        point = first_new(self._space, units, candidates[order])
        if point is not None:
            why = f"likely to be among the best {num_good} of {len(ended)} finished trials"
            return Proposal(point, why)
        return at_random(self._space, self._seed, number)


class Density:
    """A mixture of kernels around rows of units (n, d), and one that is uniform.

    Kernels of numbers are normal, cut off at 0 and 1; those of choices give one value most of the
    weight. A dimension in which a row is inactive has the uniform kernel.
    """

    def __init__(self, rows: Array, sizes: Array) -> None:
        num, num_dimensions = rows.shape
        self._rows, self._sizes = rows, sizes
        self._inactive = np.isnan(rows)
        self._middles = np.where(self._inactive, 0.5, rows)
        width = 0.2 * max(num, 1) ** (-1.0 / (num_dimensions + 4))
        self._width = min(max(width, 1.0 / min(100, num + 2)), 1.0)
        self._low = ndtr((0.0 - self._middles) / self._width)
        self._high = ndtr((1.0 - self._middles) / self._width)

    def draw(self, rng: np.random.Generator, num: int) -> Array:
        uniform = rng.random((num, len(self._sizes)))
        chosen = rng.integers(len(self._rows) + 1, size=num)
        repeats = rng.random((num, len(self._sizes)))
        kernel = np.minimum(chosen, len(self._rows) - 1)
        low, high = self._low[kernel], self._high[kernel]
        place = self._middles[kernel] + self._width * ndtri(low + uniform * (high - low))
        stays = repeats < self._weight_of_own()
        place = np.where(self._sizes > 0, np.where(stays, self._middles[kernel], uniform), place)
        spread = (chosen == len(self._rows))[:, None] | self._inactive[kernel]
        return np.clip(np.where(spread, uniform, place), 0.0, 1.0)

    def log(self, candidates: Array) -> Array:
        """The logarithm of the density at units (m, d); inactive dimensions count as 1."""
        total = self._log_of_ranges(candidates)
        for column in np.flatnonzero(self._sizes):
            size, own = self._sizes[column], self._weight_of_own()[column]
            there = candidates[:, column][:, None]
            same = np.abs(there - self._middles[:, column]) < 0.5 / size
            kernel = np.log(np.where(same, own + (1 - own) / size, (1 - own) / size) * size)
            total += np.where(np.isnan(there) | self._inactive[:, column], 0.0, kernel)
        peak = np.maximum(total.max(axis=1, initial=0.0), 0.0)
        mixture = np.exp(total - peak[:, None]).sum(axis=1) + np.exp(-peak)
        result: Array = peak + np.log(mixture / (len(self._rows) + 1))
        return result

    def _log_of_ranges(self, candidates: Array) -> Array:
        """(m, n): the kernels of the dimensions that are ranges, as three products of matrices.

        A term of a row and one of a candidate count where both are active, so each is multiplied
        with the other's activity.
        """
        ranges = self._sizes == 0
        active = np.where(self._inactive, 0.0, 1.0)[:, ranges]
        middles = self._middles[:, ranges] / self._width
        mass = (self._high - self._low)[:, ranges]
        of_rows = -0.5 * middles**2 - np.log(mass * self._width * math.sqrt(2.0 * math.pi))
        there = candidates[:, ranges] / self._width
        present = np.where(np.isnan(there), 0.0, 1.0)
        there = np.where(np.isnan(there), 0.0, there)
        total: Array = there @ (middles * active).T
        total += present @ (of_rows * active).T
        total -= 0.5 * (there**2 @ active.T)
        return total

    def _weight_of_own(self) -> Array:
        """How much of a choice's kernel is on the row's own value."""
        return np.where(self._sizes > 0, len(self._rows) / (len(self._rows) + self._sizes), 0.0)
