"""The parameters of a Gaussian process that follow a study: a step of descent with each new trial.

A full fit for each proposal takes too long. Here the parameters after the first m trials are those
after m - 1, moved by one step (Rprop) on the trials before m; early in a study by more. In a long
study the descent begins again at times, and a restart goes through the same steps since then: only
trials that ended are taken, in the order of their numbers, so the result follows from them alone.
"""

from dataclasses import dataclass

import numpy as np

from services.hpo.core.gaussian_process import (
    Features,
    bounds,
    negative_log_posterior,
    prior,
)
from services.hpo.core.samplers.improvement import known
from services.hpo.core.trials import Array, Trials, TrialState

FIRST = 6
_MAX_USED, _MAX_USED_LONG, _LONG = 96, 64, 128
_MAX_LAG = 64
_FASTER, _SLOWER = 1.3, 0.5
_LONGEST, _SHORTEST, _FIRST_LENGTH = 0.8, 1e-3, 0.25
# Steps that can be taken back, when a trial of the past changed.
_KEPT = 256
# Trials after which the descent begins again, and its steps then.
_AGAIN, _NUM_AGAIN = 512, 32


@dataclass(frozen=True, slots=True)
class _Step:
    """After the trials before `until`: the parameters, and the state of the descent."""

    until: int
    parameters: Array
    lengths: Array
    slopes: Array


class FollowingFit:
    def __init__(self, features: Features) -> None:
        num = features.num_dimensions
        self._features = features
        self._prior = prior(num)
        self._bounds = np.array(bounds(num)).T
        self._first = _Step(0, self._prior.mean, np.full(num + 2, _FIRST_LENGTH), np.zeros(num + 2))
        self._steps: list[_Step] = []
        self._seen = np.empty(0)

    def parameters(self, trials: Trials, losses: Array) -> Array:
        """`losses` (n,): any that describe how alike the trials' places are; NaN: not known."""
        until = _settled(trials, losses)
        self._forget(losses, until)
        step = self._steps[-1] if self._steps else self._first
        begun = until - until % _AGAIN
        for number in range(max(step.until + 1, FIRST, begun), until + 1):
            step = self._first if number == begun else step
            for _ in range(_NUM_AGAIN if number == begun else _num_steps(number)):
                step = self._step(step, trials, losses[:number], number)
            self._steps.append(step)
        del self._steps[:-_KEPT]
        self._seen = losses[:until].copy()
        return step.parameters

    def _forget(self, losses: Array, until: int) -> None:
        """Take back the steps that saw another result than the one that is known now."""
        common = min(len(self._seen), until)
        same = np.array_equal(self._seen[:common], losses[:common], equal_nan=True)
        if not same:
            differs = (self._seen[:common] != losses[:common]) & ~(
                np.isnan(self._seen[:common]) & np.isnan(losses[:common])
            )
            common = int(np.flatnonzero(differs)[0])
        while self._steps and self._steps[-1].until > common:
            self._steps.pop()

    def _step(self, step: _Step, trials: Trials, losses: Array, number: int) -> _Step:
        if np.isfinite(losses).sum() < FIRST - 2:
            return _Step(number, step.parameters, step.lengths, step.slopes)
        learned = known(losses, _MAX_USED if number <= _LONG else _MAX_USED_LONG)
        squares = self._features.squares(self._features.of_units(trials.units[learned.used]))
        _, slopes = negative_log_posterior(step.parameters, squares, learned.values, self._prior)
        agrees = slopes * step.slopes
        factor = np.where(agrees > 0, _FASTER, np.where(agrees < 0, _SLOWER, 1.0))
        lengths = np.minimum(np.maximum(step.lengths * factor, _SHORTEST), _LONGEST)
        slopes = np.where(agrees < 0, 0.0, slopes)
        moved = step.parameters - lengths * np.sign(slopes)
        moved = np.minimum(np.maximum(moved, self._bounds[0]), self._bounds[1])
        return _Step(number, moved, lengths, slopes)


def _settled(trials: Trials, losses: Array) -> int:
    """The first trial whose loss is not known yet, without those that have run far too long."""
    running = (each for each in trials.in_state(TrialState.RUNNING) if np.isnan(losses[each]))
    return min((each for each in running if each > len(trials) - _MAX_LAG), default=len(trials))


def _num_steps(number: int) -> int:
    """Steps for one more trial: many early in a study, when each one matters and a step is fast."""
    if number <= 32:
        return 4
    if number <= 64:
        return 2
    return 1 if number <= _LONG or number % 16 == 0 else 0
