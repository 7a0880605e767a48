"""Percentile and median: stop a trial that is worse than most others were at the same step.

The best value that the trial has had so far is compared with the values of the others at this step,
so one bad measurement does not stop it. The median is the percentile 50: Vizier's rule, with the
others' values at the step in place of their running averages.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from services.hpo.core.pruners.base import Base
from services.hpo.core.strategies import Judgement, Verdict
from services.hpo.core.trials import Trials


@dataclass(frozen=True, slots=True)
class Percentile(Base):
    """Keeps the best `percentile` percent, once `min_trials` others have a value at the rung."""

    percentile: float
    min_trials: int

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        ranked = trials.rung(step).ranked
        own_place = bisect_left(ranked, (trials.loss_of(value), number))
        place = {"rank": own_place + 1, "num_ranked": len(ranked)}
        num_others = len(ranked) - 1
        if num_others < self.min_trials:
            reason = f"{num_others} of {self.min_trials} other trials have a value at step {step}."
            return Judgement(Verdict.CONTINUE, reason, **place)
        limit = _limit(ranked, own_place, self.percentile)
        best = min(
            trials.loss_of(one.value)
            for one in trials[number].measured
            if one.value is not None and one.step <= step
        )
        threshold = trials.loss_of(limit)
        name = "median" if self.percentile == 50 else f"best {self.percentile:g} percent"
        told = f"than the {name} of {num_others} others at step {step}, {threshold:.6g}."
        if best > limit:
            reason = f"Its best value so far, {trials.loss_of(best):.6g}, is worse {told}"
            return Judgement(Verdict.STOP, reason, threshold, **place)
        reason = f"Its best value so far, {trials.loss_of(best):.6g}, is not worse {told}"
        return Judgement(Verdict.CONTINUE, reason, threshold, **place)


def _limit(ranked: Sequence[tuple[float, int]], left_out: int, percentile: float) -> float:
    """The percentile of all losses but one, with linear interpolation."""

    def loss(place: int) -> float:
        return ranked[place + (place >= left_out)][0]

    last = len(ranked) - 2
    at = percentile / 100 * last
    below = floor(at)
    above = min(below + 1, last)
    return loss(below) * (1 - (at - below)) + loss(above) * (at - below)
