"""Population-based training (Jaderberg et al., 2017), with truncation selection.

The first `size` trials are the population. One that is among the worst `quantile` at a rung stops;
a new trial takes its place, which goes on from the newest checkpoint of one of the best (exploit)
with changed hyperparameters (explore). Nothing waits: a trial is ranked among those that came to
the same rung before it. The place of a failed trial is filled likewise. Where none of the best
still runs, none is stopped: nothing could take its place.
"""

import hashlib
from dataclasses import dataclass
from math import floor

from services.hpo.core.pruners.base import Base
from services.hpo.core.space import (
    NUM_BITS,
    Choice,
    Parameter,
    Point,
    Scalar,
    Space,
    Uniform,
    draw,
)
from services.hpo.core.strategies import Drop, Fork, Judgement, Promote, Verdict
from services.hpo.core.trials import Trials, TrialState

# Changes of a point that breaks a constraint; then the parent's own point is used.
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Explore:
    """A number is multiplied or divided by `factor`; with probability `resample` drawn again."""

    factor: float
    resample: float


@dataclass(frozen=True, slots=True)
class Population(Base):
    size: int
    quantile: float
    explore: Explore
    max_trials: int
    seed: int
    space: Space

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        rung = trials.rung(step)
        num = len(rung.values)
        num_replaced = floor(self.quantile * num)
        rank = rung.rank(trials.loss_of(value), number)
        place = f"It is number {rank + 1} of {num} at step {step}"
        threshold = None
        if num - num_replaced <= len(rung.ranked):
            threshold = trials.loss_of(rung.ranked[num - num_replaced - 1][0])
        if rank < num - num_replaced:
            reason = f"{place}: {num_replaced} are replaced."
            return Judgement(Verdict.CONTINUE, reason, threshold, rank + 1, num)
        if len(trials) + self._num_vacant(trials) >= self.max_trials:
            reason = f"{place}, and there are no further trials to replace it."
            return Judgement(Verdict.CONTINUE, reason, threshold, rank + 1, num)
        if not any(set(self._best_running(trials, each)) - {number} for each in self.steps):
            reason = f"{place}, and none of the best still runs, so that none can be copied."
            return Judgement(Verdict.CONTINUE, reason, threshold, rank + 1, num)
        reason = f"{place}: a copy of a better one takes its place."
        return Judgement(Verdict.STOP, reason, threshold, rank + 1, num)

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        number = len(trials)
        if number < self.size or not self._num_vacant(trials):
            return None
        for step in reversed(self.steps):
            best = self._best_running(trials, step)
            if best:
                chosen = best[_bits(self.seed, number, "parent") * len(best) >> NUM_BITS]
                point = explore(self.space, self.explore, trials[chosen].point, self.seed, number)
                why = f"It goes on from trial {chosen}, one of the best at step {step}."
                return Fork(chosen, point, why)
        return None

    def may_propose(self, trials: Trials) -> bool:
        return len(trials) < self.size

    def _num_vacant(self, trials: Trials) -> int:
        """The places of the population that nobody fills; trials after the first are forks."""
        num_left = sum(
            len(trials.in_state(state)) for state in (TrialState.STOPPED, TrialState.FAILED)
        )
        return num_left - max(0, len(trials) - self.size)

    def _best_running(self, trials: Trials, step: int) -> list[int]:
        """The best of a rung at which enough were measured, as far as they still run."""
        rung = trials.rung(step)
        num_best = floor(self.quantile * len(rung.values))
        measured = (
            (number, rung.values.get(number)) for number in trials.in_state(TrialState.RUNNING)
        )
        return sorted(
            number
            for number, value in measured
            if value is not None and rung.rank(trials.loss_of(value), number) < num_best
        )


def explore(space: Space, how: Explore, parent: Point, seed: int, number: int) -> Point:
    """The parent's point, changed by bits that follow from seed and number; feasible."""
    for attempt in range(_MAX_ATTEMPTS):
        point = _changed(space, how, parent, (seed, number, attempt))
        if space.is_feasible(point):
            return point
    return parent


def _changed(space: Space, how: Explore, parent: Point, key: tuple[int, ...]) -> Point:
    parameters = dict(space)
    point: Point = {}
    for name in space.parents_first:
        if not space.is_active(name, point):
            continue
        chance = _fraction(_bits(*key, name, "resample"))
        if name not in parent or chance < how.resample:
            point[name] = draw(parameters[name], _bits(*key, name, "value"))
        else:
            is_up = bool(_bits(*key, name, "direction") & 1)
            point[name] = _scaled(parameters[name], parent[name], how.factor, is_up)
    return {name: point[name] for name, _ in space if name in point}


def _scaled(parameter: Parameter, value: Scalar, factor: float, is_up: bool) -> Scalar:
    """A choice stays as it is; a whole number moves by 1 at least, if its bounds allow."""
    if isinstance(parameter, Choice):
        return value
    assert not isinstance(value, str)
    scaled = value * factor if is_up else value / factor
    if isinstance(parameter, Uniform):
        return min(max(float(f"{scaled:.12g}"), parameter.low), parameter.high)
    moved = round(scaled)
    if moved == value:
        moved += 1 if is_up else -1
    return min(max(moved, parameter.low), parameter.high)


def _bits(*parts: int | str) -> int:
    text = "\0".join(str(part) for part in ("population", *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def _fraction(bits: int) -> float:
    return float(bits >> (NUM_BITS - 53)) / 2.0**53
