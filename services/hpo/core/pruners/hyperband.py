"""Hyperband: successive halving in brackets that begin with different numbers of steps.

A bracket is a cohort of its own, and follows from the trial's number: with r rungs a round has
brackets r, ..., 1, 0, and bracket s begins with ceil((r + 1) / (s + 1) * reduction_factor ** s)
trials, judged at the last s rungs (Li et al., JMLR 2018, algorithm 1). With 81 steps, a factor of 3
and a first rung at 1 a round is 81 + 34 + 15 + 8 + 5 trials. Rounds follow each other until the
study has all its trials; the last bracket may be smaller.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from services.hpo.core.pruners.asha import is_exhausted
from services.hpo.core.pruners.base import Base
from services.hpo.core.pruners.cohorts import Cohort
from services.hpo.core.strategies import Drop, Fork, Judgement, Promote
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Hyperband(Base):
    """`ends`: the number after the last of each bracket of the first round."""

    reduction_factor: int
    max_trials: int
    ends: tuple[int, ...]

    def group_of(self, number: int) -> int:
        round_number, place = divmod(number, self.ends[-1])
        return round_number * len(self.ends) + bisect_right(self.ends, place)

    def steps_of(self, number: int) -> tuple[int, ...]:
        return self._cohort(self.group_of(number)).steps

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        return self._cohort(self.group_of(number)).judge(trials, number, step, value)

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        is_last = is_exhausted(trials, self.max_trials)
        for group in sorted(trials.open_groups):
            if promoted := self._cohort(group).next(trials, is_last):
                return promoted
        return None

    def _cohort(self, group: int) -> Cohort:
        round_number, bracket = divmod(group, len(self.ends))
        start = round_number * self.ends[-1]
        first = start + (self.ends[bracket - 1] if bracket else 0)
        end = min(start + self.ends[bracket], self.max_trials)
        return Cohort(group, first, end, self.steps[bracket:], self.reduction_factor)


def hyperband(steps: tuple[int, ...], reduction_factor: int, max_trials: int) -> Hyperband:
    num = len(steps) + 1
    sizes = (-(-num * reduction_factor**s // (s + 1)) for s in reversed(range(num)))
    return Hyperband(steps, reduction_factor, max_trials, tuple(accumulate(sizes)))
