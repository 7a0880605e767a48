"""Patience: stop a trial that no longer gets better, whatever the others do."""

import math
from dataclasses import dataclass

from services.hpo.core.pruners.base import Base
from services.hpo.core.strategies import Judgement, Verdict
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Patience(Base):
    """Over its last `num_rungs` rungs a trial must improve by more than `min_improvement`."""

    num_rungs: int
    min_improvement: float

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        losses = [
            math.inf if one.value is None else trials.loss_of(one.value)
            for one in trials[number].measured
            if one.step <= step
        ]
        if len(losses) <= self.num_rungs:
            reason = f"It was measured at {len(losses)} rungs; {self.num_rungs + 1} are needed."
            return Judgement(Verdict.CONTINUE, reason)
        before, recent = min(losses[: -self.num_rungs]), min(losses[-self.num_rungs :])
        best = None if before == math.inf else trials.loss_of(before)
        if best is None or before - recent > self.min_improvement:
            reason = f"It got better within its last {self.num_rungs} rungs."
            return Judgement(Verdict.CONTINUE, reason, best)
        least = f"more than {self.min_improvement:g} " if self.min_improvement else ""
        reason = f"It got no {least}better than {best:.6g} in its last {self.num_rungs} rungs."
        return Judgement(Verdict.STOP, reason, best)
