"""What a finished trial is worth: the values of all objectives, whether it is safe, and the trials
that no other one surpasses.

The first objective is the job's metric, at its best value; further ones and the safety metric have
their last values. A trial that did not report one of the objectives has no worth and a reason. One
that did not report the safety metric is not known to be safe, so it is not.
"""

import math
from dataclasses import dataclass

import numpy as np

from services.hpo.core.ranking import Goal, Reported, trial_value
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Safety:
    """A metric that must not leave these bounds, which belong to what is safe."""

    metric: str
    low: float | None = None
    high: float | None = None

    def holds(self, value: float | None) -> bool:
        if value is None or value != value:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True)
class Objectives:
    """The names and goals of the metrics that trials are ranked by, the job's metric first."""

    metrics: tuple[tuple[str, Goal], ...]
    safety: Safety | None = None

    @property
    def goals(self) -> tuple[Goal, ...]:
        return tuple(goal for _, goal in self.metrics)


@dataclass(frozen=True, slots=True)
class Worth:
    """The raw values of all objectives."""

    values: tuple[float, ...]
    is_safe: bool = True
    safety: float | None = None


@dataclass(frozen=True, slots=True)
class NoWorth:
    detail: str


def worth(reported: Reported | None, objectives: Objectives) -> Worth | NoWorth:
    """What the result of a trial's job says about it."""
    values = []
    for name, goal in objectives.metrics:
        value = trial_value(reported, name, goal)
        if value is None:
            return NoWorth(f"the job reported no value of {name}")
        values.append(value)
    safety = objectives.safety
    if safety is None:
        return Worth(tuple(values))
    last = reported.metrics.get(safety.metric) if reported else None
    known = last if last is not None and math.isfinite(last) else None
    return Worth(tuple(values), is_safe=safety.holds(last), safety=known)


def pareto(trials: Trials) -> tuple[int, ...]:
    """The completed safe trials that no other one surpasses, by number.

    One surpasses another that is as good in all objectives and better in one. Of trials that are
    equal in all objectives the one with the lowest number counts, so the front does not depend on
    the order in which results arrived.
    """
    losses = trials.objectives
    numbers = np.flatnonzero(np.isfinite(losses).all(axis=1))
    # Sorted, no trial is surpassed by a later one.
    order = np.lexsort((numbers, *losses[numbers].T[::-1]))
    front: list[int] = []
    kept = np.empty_like(losses)
    for number in numbers[order]:
        if not (kept[: len(front)] <= losses[number]).all(axis=1).any():
            kept[len(front)] = losses[number]
            front.append(int(number))
    return tuple(sorted(front))
