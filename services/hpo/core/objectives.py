"""What a finished trial is worth: the values of all objectives, whether it is safe, and the trials
that no other one surpasses.

The first objective is the job's metric, at its best value; further ones and the safety metric have
their last values. A trial that did not report one of the objectives has no worth and a reason. One
that did not report the safety metric is not known to be safe, so it is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.hpo.core.ranking import Goal, Reported, trial_value


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
    return Worth(tuple(values), is_safe=safety.holds(last))


class Front:
    """The trials that no other one surpasses: as good in all objectives and better in one.

    Of trials that are equal in all objectives the one with the lowest number counts, so the front
    does not depend on the order in which results arrived.
    """

    def __init__(self) -> None:
        self._losses: dict[int, tuple[float, ...]] = {}

    def add(self, number: int, losses: Sequence[float]) -> bool:
        """Whether the trial is on the front now; losses are smaller where better."""
        new = tuple(losses)
        if any(_surpasses(each, by, new, number) for by, each in self._losses.items()):
            return False
        surpassed = [by for by, each in self._losses.items() if _surpasses(new, number, each, by)]
        for by in surpassed:
            del self._losses[by]
        self._losses[number] = new
        return True

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(sorted(self._losses))


def _surpasses(
    losses: tuple[float, ...], number: int, others: tuple[float, ...], other: int
) -> bool:
    if losses == others:
        return number < other
    return all(loss <= other for loss, other in zip(losses, others, strict=True))
