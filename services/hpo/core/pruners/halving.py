"""Synchronous successive halving: all trials of the study are one cohort."""

from dataclasses import dataclass

from services.hpo.core.pruners.asha import is_exhausted
from services.hpo.core.pruners.base import Base
from services.hpo.core.pruners.cohorts import Cohort
from services.hpo.core.strategies import Drop, Fork, Judgement, Promote
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Halving(Base):
    cohort: Cohort

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        return self.cohort.judge(trials, number, step, value)

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        return self.cohort.next(trials, is_exhausted(trials, self.cohort.end))


def halving(steps: tuple[int, ...], reduction_factor: int, max_trials: int) -> Halving:
    return Halving(steps, Cohort(0, 0, max_trials, steps, reduction_factor))
