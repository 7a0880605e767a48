"""The step that all samplers with a Gaussian process share: where is most to be gained?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.gaussian_process import Features, Posterior, log_expected_improvement
from services.hpo.core.samplers.candidates import Candidates
from services.hpo.core.samplers.proposing import first_new
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array, Trials, TrialState

Numbers = NDArray[np.intp]

# Of trials that run: the latest count.
_MAX_RUNNING = 64
# Larger losses count as this one, so that squares are finite.
_LARGEST = 1e100
# What is that many times as far from a usual loss as this is from the best is an outlier.
_FAR = 10.0
_FEWEST_FIRST, _NUM_FIRST = 8, 16
# The best trials, around which candidates lie.
_NUM_STARTS = 4


@dataclass(frozen=True, slots=True)
class Known:
    """The trials that a process learns from: their numbers, and their standardized losses."""

    used: Numbers
    values: Array


def known(losses: Array, limit: int) -> Known:
    """At most `limit` of the trials that ended: half of them the best, and the latest."""
    ended = np.flatnonzero(~np.isnan(losses))
    largest = _largest(losses[ended])
    if len(ended) > limit:
        is_used = _is_among_best(losses[ended], limit // 2)
        latest = np.flatnonzero(~is_used)[-(limit - limit // 2) :]
        is_used[latest] = True
        ended = ended[is_used]
    return Known(ended, _standardized(losses[ended], largest))


def _is_among_best(losses: Array, num: int) -> NDArray[np.bool_]:
    """The `num` smallest losses, of equal ones the first: a stable sort, in less time."""
    last = np.partition(losses, num - 1)[num - 1]
    is_best: NDArray[np.bool_] = losses < last
    is_best[np.flatnonzero(losses == last)[: num - int(is_best.sum())]] = True
    return is_best


class Improvement:
    """Proposes the point of the largest expected improvement."""

    def __init__(self, space: Space, features: Features, num: tuple[int, int, int, int]) -> None:
        self._space, self._features, self._num = space, features, num
        self._candidates = Candidates(space)

    def propose(
        self, trials: Trials, known: Known, parameters: Array, rng: np.random.Generator
    ) -> Proposal | None:
        """None where each candidate was tried before or breaks a constraint."""
        units = trials.units
        used = set(known.used.tolist())
        running = sorted(each for each in trials.in_state(TrialState.RUNNING) if each not in used)
        running = running[-_MAX_RUNNING:]
        posterior = Posterior(
            self._features,
            parameters,
            self._features.of_units(units[known.used]),
            known.values,
            self._features.of_units(units[running]),
        )

        def score(rows: Array) -> Array:
            mean, deviation = posterior.predict(self._features.of_units(rows))
            return log_expected_improvement(mean, deviation, posterior.best)

        starts = known.used[np.argsort(known.values, kind="stable")[:_NUM_STARTS]]
        ranked = self._candidates.best(rng, units[starts], score, self._num)
        point = first_new(self._space, units, ranked)
        if point is None:
            return None
        why = f"promises the largest improvement, by a model of {len(known.used)} trials"
        return Proposal(point, why)


def _largest(losses: Array) -> float:
    """Larger losses tell no more than this one: that training diverged. Never above `_LARGEST`.

    Where some are thousands of times as large as others, a model of all of them sees no difference
    between the good ones. What is usual is told by the first trials: later ones lie close together.
    """
    finite = losses[np.isfinite(losses)]
    if len(finite) < _FEWEST_FIRST:
        return _LARGEST
    first = np.sort(finite[:_NUM_FIRST])
    usual, best = float(first[len(first) * 2 // 5]), float(finite.min())
    return min(usual + _FAR * (usual - best), _LARGEST) if usual > best else _LARGEST


def _standardized(losses: Array, largest: float) -> Array:
    """Mean 0, deviation 1; a failed trial counts as the worst one that did not fail."""
    finite = np.isfinite(losses)
    if not finite.any():
        return np.zeros(len(losses))
    values = np.where(finite, losses, losses[finite].max())
    values = np.maximum(np.minimum(values, largest), -_LARGEST)
    values = values - values.mean()
    deviation = float(values.std())
    result: Array = values / deviation if deviation > 0.0 else values
    return result
