"""The default pruner: a trial goes on while it may still become the best.

At a ninth and a third of the steps, the complete trials tell how losses there turn into final
ones. A trial stops whose chance to become the best is too small for the steps ahead of it, by what
the same steps would bring if new trials ran them. So where losses at a rung say nothing, all
trials are alike and all go on, and the best of the latest goes on always. To resume stopped trials
later, when more is known, was tried and gained nothing: new points were the better use.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from services.hpo.core.final_losses import line
from services.hpo.core.pruners.base import Base
from services.hpo.core.strategies import Judgement, Verdict
from services.hpo.core.trials import Trials

# These run to their end, whatever they measure: what is learned from chosen ones alone misleads.
_NUM_WHOLE = 4
# The latest trials at a rung show what a new one may be: as many as come there in the steps that so
# many whole trials take.
_WORTH = 2


def steps_of_auto(max_steps: int) -> tuple[int, ...]:
    return tuple(sorted({step for part in (9, 3) if 0 < (step := max_steps // part) < max_steps}))


@dataclass(frozen=True, slots=True)
class Auto(Base):
    max_steps: int

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        rung = trials.rung(step)
        loss = trials.loss_of(value)
        rank, num = rung.rank(loss, number) + 1, len(rung.ranked)
        losses = trials.losses[np.isfinite(trials.losses)]
        if number < _NUM_WHOLE:
            goes_on, reason = True, f"The first {_NUM_WHOLE} trials run to their end."
        elif len(losses):
            best = float(losses.min())
            chance = line(trials, step).chance(loss, best)
            offered = min(self._offered(trials, each, best) for each in {self.steps[0], step})
            least = (self.max_steps - step) * offered
            goes_on = chance >= least
            reason = (
                f"By its value at step {step}, it becomes the best with a chance of {chance:.0%}; "
                f"new trials have one of {least:.0%} in as many steps."
            )
        else:
            goes_on = rung.is_unbeaten(loss)
            reason = f"It is number {rank} of {num} at step {step}, and no trial is complete."
        verdict = Verdict.CONTINUE if goes_on else Verdict.STOP
        return Judgement(verdict, reason, None, rank, num)

    def _offered(self, trials: Trials, step: int, best: float) -> float:
        """The chance of a new best per step, of trials of which the right part goes on from here.

        It never asks more than the best of the latest trials has, so some always go on.
        """
        values = trials.rung(step).values
        latest = heapq.nlargest(max(1, _WORTH * self.max_steps // step), values)
        found = line(trials, step)
        losses = (trials.loss_of(value) for each in latest if (value := values[each]) is not None)
        chances = sorted((found.chance(loss, best) for loss in losses), reverse=True)
        num_going_on = np.arange(1, len(chances) + 1)
        steps = len(latest) * step + num_going_on * (self.max_steps - step)
        return float((np.cumsum(chances) / steps).max())
