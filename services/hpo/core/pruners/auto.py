"""The default pruner: a trial goes on while it may still become the best.

At a ninth and a third of the steps, the complete trials tell how losses there turn into final
ones. A trial that becomes the best with too small a chance stops. To resume stopped trials later,
when more is known, was tried and gained nothing: new points were the better use of the devices.
"""

from dataclasses import dataclass

import numpy as np

from services.hpo.core.final_losses import line
from services.hpo.core.pruners.base import Base
from services.hpo.core.strategies import Judgement, Verdict
from services.hpo.core.trials import Trials

_MIN_CHANCE = 0.25
# While no trial is complete, the best one in so many goes on.
_FIRST_SHARE = 4


def steps_of_auto(max_steps: int) -> tuple[int, ...]:
    return tuple(sorted({step for part in (9, 3) if 0 < (step := max_steps // part) < max_steps}))


@dataclass(frozen=True, slots=True)
class Auto(Base):
    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        rung = trials.rung(step)
        loss = trials.loss_of(value)
        rank, num = rung.rank(loss, number) + 1, len(rung.ranked)
        losses = trials.losses[np.isfinite(trials.losses)]
        if len(losses):
            chance = line(trials, step).chance(loss, float(losses.min()))
            goes_on = chance >= _MIN_CHANCE
            reason = (
                f"By its value at step {step}, it becomes the best with a chance of {chance:.0%}."
            )
        else:
            goes_on = rank <= max(1, num // _FIRST_SHARE)
            reason = f"It is number {rank} of {num} at step {step}, and no trial is complete."
        verdict = Verdict.CONTINUE if goes_on else Verdict.STOP
        return Judgement(verdict, reason, None, rank, num)
