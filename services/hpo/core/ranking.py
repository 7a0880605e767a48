"""How trials are ranked: by value in the direction of the goal, then by number.

The order is total, so the best trial does not depend on the order in which results arrived.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Goal = Literal["minimize", "maximize"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A trial that has a value."""

    number: int
    value: float


@dataclass(frozen=True, slots=True)
class Reported:
    """The metrics of a finished job: the last values, and the best value of one of them."""

    metrics: Mapping[str, float]
    best_name: str | None = None
    best_goal: str | None = None
    best_value: float | None = None


def is_better(goal: Goal, candidate: Ranked, than: Ranked | None) -> bool:
    if than is None:
        return True
    return _rank(goal, candidate) < _rank(goal, than)


def trial_value(reported: Reported | None, metric: str, goal: Goal) -> float | None:
    """The best value of the study's metric, else its last; None when the job reported neither."""
    if reported is None:
        return None
    if reported.best_name == metric and reported.best_goal == goal:
        return reported.best_value
    return reported.metrics.get(metric)


def _rank(goal: Goal, trial: Ranked) -> tuple[float, int]:
    return (trial.value if goal == "minimize" else -trial.value, trial.number)
