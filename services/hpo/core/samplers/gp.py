"""Bayesian optimization: a Gaussian process of the losses, and the largest expected improvement.

The kernel's parameters are fitted again for each trial. A trial that runs counts with the loss that
is expected of it, so that parallel trials do not all go to one place.
"""

from services.hpo.core.gaussian_process import Features, fit
from services.hpo.core.samplers.improvement import Improvement, is_flat, known
from services.hpo.core.samplers.proposing import Draws, at_random
from services.hpo.core.samplers.sobol import Sobol
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Trials

_NUM_FIRST = 10
_MAX_USED = 200
_MAX_ROUNDS = 50
_NUM_CANDIDATES = (128, 256, 128, 128)


class Gp:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._space, self._seed = space, seed
        self._draws = Draws("gp", seed)
        self._features = Features.of(space)
        self._improvement = Improvement(space, self._features, _NUM_CANDIDATES)
        self._first = Sobol(space, seed, max_trials)

    def propose(self, trials: Trials, number: int) -> Proposal:
        losses = trials.losses_for(number)
        if number < _NUM_FIRST or is_flat(losses) or not self._space.dimensions:
            return self._first.propose(trials, number)
        learned = known(losses, _MAX_USED)
        observed = self._features.of_units(trials.units[learned.used])
        parameters = fit(self._features, observed, learned.values, _MAX_ROUNDS)
        rng = self._draws.of(number)
        proposal = self._improvement.propose(trials, learned, parameters, rng)
        return proposal or at_random(self._space, self._seed, number)
