"""The default: Bayesian optimization whose cost per trial is bounded.

A Gaussian process of the best and the latest trials, with parameters that follow the study step by
step, so a proposal takes about a millisecond. With several objectives the model changes from trial
to trial and is fitted again each time, as the sampler `gp` does.
"""

import numpy as np

from services.hpo.core.final_losses import with_expected
from services.hpo.core.gaussian_process import Features
from services.hpo.core.samplers.following_fit import FollowingFit
from services.hpo.core.samplers.gp import Gp
from services.hpo.core.samplers.improvement import Improvement, is_flat, known
from services.hpo.core.samplers.portfolio import portfolio
from services.hpo.core.samplers.proposing import Draws, at_random, first_new
from services.hpo.core.samplers.sobol import Sobol
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array, Trials

_NUM_FIRST = 8
NUM_FROM_EARLIER = 8
# Trials that the model uses and candidates that it looks at: thorough while trials are few, and
# in a long study within the time that a proposal may take.
_LONG = 128
_MAX_USED, _NUM_CANDIDATES = 112, (64, 128, 96, 96)
_MAX_USED_LONG, _NUM_CANDIDATES_LONG = 64, (32, 64, 48, 48)


class Auto:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._space, self._seed = space, seed
        self._draws = Draws("auto", seed)
        self._earlier: Array | None = None
        self._features = features = Features.of(space)
        self._fit = FollowingFit(features)
        self._thorough = Improvement(space, features, _NUM_CANDIDATES)
        self._quick = Improvement(space, features, _NUM_CANDIDATES_LONG)
        self._first = Sobol(space, seed, max_trials)
        self._several = Gp(space, seed, max_trials)

    def propose(self, trials: Trials, number: int) -> Proposal:
        if len(trials.goals) > 1:
            return self._several.propose(trials, number)
        if number < NUM_FROM_EARLIER and number < len(first := self._portfolio(trials)):
            point = first_new(self._space, trials.units, first[number:])
            if point is not None:
                return Proposal(point, f"among the best in {len(trials.earlier)} earlier studies")
        losses, shape = _learned(trials)
        if number < _NUM_FIRST or is_flat(losses) or not self._space.dimensions:
            return self._first.propose(trials, number)
        parameters = self._fit.parameters(trials, shape)
        rng = self._draws.of(number)
        if number < _LONG:
            learned = known(losses, _MAX_USED)
            proposal = self._thorough.propose(trials, learned, parameters, rng)
        else:
            learned = known(losses, _MAX_USED_LONG)
            proposal = self._quick.propose(trials, learned, parameters, rng)
        return proposal or at_random(self._space, self._seed, number)

    def _portfolio(self, trials: Trials) -> Array:
        if self._earlier is None:
            self._earlier = portfolio(self._features, trials.earlier, NUM_FROM_EARLIER)
        return self._earlier


def _learned(trials: Trials) -> tuple[Array, Array]:
    """The losses known or expected, and losses that show how alike the trials' places are.

    In a study with rungs the latter are those at the first rung: all trials have them soon. Where
    rungs tell nothing of final losses, only these count.
    """
    losses, early = trials.losses, trials.curves[:, 0]
    expected = with_expected(trials, losses)
    if np.array_equal(expected, losses, equal_nan=True):
        return losses, losses
    early = np.where(np.isinf(losses) & np.isnan(early), losses, early)
    return expected, early
