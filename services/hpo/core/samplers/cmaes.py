"""CMA-ES: a normal distribution moves and bends towards the better half of each generation.

The finished trials, by number, are cut into generations, and the strategy is told each in turn; a
trial is drawn from the distribution after the last whole generation. So the state follows from the
trials, whatever their order in time was. Whole numbers and choices are rounded from places in
[0, 1]; an inactive parameter counts as the middle.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from services.hpo.core.samplers.proposing import Draws, at_random, first_new
from services.hpo.core.space import Space
from services.hpo.core.strategies import Proposal
from services.hpo.core.trials import Array, Trials, TrialState

_SPREAD = 1.0 / 6.0
# Draws for one trial, of which the first feasible one is tried.
_NUM_DRAWS = 32
# Generations whose state is kept: a trial that ends late changes the last few at most.
_KEPT = 32
_WORST = 1e300

Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Told:
    """The strategy after a number of generations, which held these trials with these losses."""

    numbers: Numbers
    losses: Array
    strategy: CMA


class Cmaes:
    def __init__(self, space: Space, seed: int, max_trials: int) -> None:
        self._space, self._seed = space, seed
        self._draws = Draws("cmaes", seed)
        # The library needs two dimensions.
        self._num_dimensions = max(len(space.dimensions), 2)
        self._size = 4 + math.floor(3 * math.log(self._num_dimensions))
        self._first = _Told(np.empty(0, dtype=np.intp), np.empty(0), self._start())
        self._told: list[_Told] = []

    def propose(self, trials: Trials, number: int) -> Proposal:
        told = self._follow(trials, number)
        generation = len(told.numbers) // self._size
        strategy = copy.deepcopy(told.strategy)
        digits = self._draws.of(number).integers(2**31)
        strategy.reseed_rng(int(digits))
        drawn = np.array([strategy.ask() for _ in range(_NUM_DRAWS)])
        rows = drawn[:, : len(self._space.dimensions)]
        point = first_new(self._space, trials.units, rows)
        if point is not None:
            why = f"drawn from the distribution after {generation} generations of {self._size}"
            return Proposal(point, why)
        return at_random(self._space, self._seed, number)

    def _follow(self, trials: Trials, number: int) -> _Told:
        """Tell the strategy what it was not told yet; go back where something changed."""
        is_ended = np.ones(len(trials), dtype=bool)
        for state in (TrialState.RUNNING, TrialState.PAUSED):
            is_ended[list(trials.in_state(state))] = False
        ended = np.flatnonzero(is_ended)
        losses = np.nan_to_num(trials.losses_for(number)[ended], nan=_WORST, posinf=_WORST)
        while self._told and not _is_start(self._told[-1], ended, losses):
            self._told.pop()
        told = self._told[-1] if self._told else self._first
        units = np.nan_to_num(trials.units, nan=0.5)
        for start in range(len(told.numbers), len(ended) - self._size + 1, self._size):
            stop = start + self._size
            strategy = copy.deepcopy(told.strategy)
            strategy.tell(
                [
                    (self._wide(units[each]), float(loss))
                    for each, loss in zip(ended[start:stop], losses[start:stop], strict=True)
                ]
            )
            told = _Told(ended[:stop], losses[:stop], strategy)
            self._told = [*self._told[1 - _KEPT :], told]
        return told

    def _start(self) -> CMA:
        return CMA(
            mean=np.full(self._num_dimensions, 0.5),
            sigma=_SPREAD,
            bounds=np.tile([0.0, 1.0], (self._num_dimensions, 1)),
            population_size=self._size,
            seed=0,
        )

    def _wide(self, row: Array) -> Array:
        return np.concatenate([row, np.full(self._num_dimensions - len(row), 0.5)])


def _is_start(told: _Told, ended: Numbers, losses: Array) -> bool:
    num = len(told.numbers)
    return (
        num <= len(ended)
        and np.array_equal(told.numbers, ended[:num])
        and np.array_equal(told.losses, losses[:num])
    )
