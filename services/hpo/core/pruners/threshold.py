"""Threshold: stop a trial whose metric leaves the given bounds; a value on a bound is within."""

from dataclasses import dataclass

from services.hpo.core.pruners.base import Base
from services.hpo.core.strategies import Judgement, Verdict
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Threshold(Base):
    """Bounds of the raw metric; None: no bound."""

    lower: float | None
    upper: float | None

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        if self.lower is not None and value < self.lower:
            reason = f"{value:.6g} at step {step} is below {self.lower:g}."
            return Judgement(Verdict.STOP, reason, self.lower)
        if self.upper is not None and value > self.upper:
            reason = f"{value:.6g} at step {step} is above {self.upper:g}."
            return Judgement(Verdict.STOP, reason, self.upper)
        return Judgement(Verdict.CONTINUE, f"{value:.6g} at step {step} is within its bounds.")
