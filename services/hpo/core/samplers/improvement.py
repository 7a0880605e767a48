"""The step that all samplers with a Gaussian process share: where is most to be gained?"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.gaussian_process import Features, Posterior, log_expected_improvement
from services.hpo.core.outliers import Scale, bounded, scale_of
from services.hpo.core.samplers.candidates import Candidates
from services.hpo.core.samplers.proposing import first_new, is_among_best
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array, Trials, TrialState

Numbers = NDArray[np.intp]

# Of trials that run: the latest count.
_MAX_RUNNING = 64
# Less than this share of the way from the median loss to the best is hardly worth a trial.
_LEAST_SHARE = 1e-3
# Places that are looked at, and trials that they are compared with, where none promises more.
_NUM_FAR, _MAX_NEAR = 128, 512
# The best trials, around which candidates lie.
_NUM_STARTS = 4


@dataclass(frozen=True, slots=True)
class Known:
    """The trials that a process learns from: their numbers, and their standardized losses."""

    used: Numbers
    values: Array
    are_spread: bool  # over orders of magnitude


def known(losses: Array, limit: int) -> Known:
    """At most `limit` of the trials that ended: half of them the best, and the latest."""
    ended = np.flatnonzero(losses == losses)  # all but NaN
    found = losses[ended]
    scale = scale_of(found)
    if len(ended) > limit:
        is_used = is_among_best(found, limit // 2)
        latest = np.flatnonzero(~is_used)[-(limit - limit // 2) :]
        is_used[latest] = True
        ended, found = ended[is_used], found[is_used]
    return Known(ended, _standardized(found, scale), scale.floor is not None)


def is_flat(losses: Array) -> bool:
    """Whether most trials are equally best, as far as is known: a model sees no way from there."""
    finite = losses[np.isfinite(losses)]
    return len(finite) < 2 or bool(2 * (finite == finite.min()).sum() > len(finite))


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
        running = trials.in_state(TrialState.RUNNING) - set(known.used.tolist())
        pending = np.array(sorted(running)[-_MAX_RUNNING:], dtype=int)
        posterior = Posterior(
            self._features,
            parameters,
            self._features.of_units(units[np.concatenate([known.used, pending])]),
            known.values,
        )
        if known.are_spread and posterior.explains_nothing(known.values):
            anywhere = self._space.snap(rng.random((_NUM_FAR, units.shape[1])))
            if (point := first_new(self._space, units, anywhere)) is not None:
                return Proposal(point, "drawn at random: a model of the trials explains nothing")

        def score(rows: Array) -> Array:
            mean, deviation = posterior.predict(self._features.of_units(rows))
            return log_expected_improvement(mean, deviation, posterior.best)

        starts = known.used[np.argsort(known.values, kind="stable")[:_NUM_STARTS]]
        ranked = self._candidates.best(rng, units[starts], score, self._num)
        least = _LEAST_SHARE * float(np.median(known.values) - known.values.min())
        if math.exp(score(ranked[:1])[0]) < least:
            point = first_new(self._space, units, self._farthest(units, rng))
            if point is not None:
                why = "lies farthest from all others: near them, little is to be gained"
                return Proposal(point, why)
        point = first_new(self._space, units, ranked)
        if point is None:
            return None
        why = f"promises the largest improvement, by a model of {len(known.used)} trials"
        return Proposal(point, why)

    def _farthest(self, units: Array, rng: np.random.Generator) -> Array:
        """Rows of units, first those farthest from the latest trials."""
        rows = self._space.snap(rng.random((_NUM_FAR, units.shape[1])))
        tried = self._features.of_units(units[-_MAX_NEAR:])
        away = self._features.of_units(rows)[:, None, :] - tried
        nearest = np.square(away).sum(axis=2).min(axis=1)
        return rows[np.argsort(-nearest, kind="stable")]


def _standardized(losses: Array, scale: Scale) -> Array:
    """Mean 0, deviation 1; one that failed or is an outlier counts as the worst of the others."""
    values = bounded(losses, float(losses[losses <= scale.largest].max()))
    if scale.floor is not None:
        values = np.log(values - values.min() + scale.floor)
    values -= values.mean()
    deviation = math.sqrt(float(values @ values) / len(values))
    result: Array = values / deviation if deviation > 0.0 else values
    return result
