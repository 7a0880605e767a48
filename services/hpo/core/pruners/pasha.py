"""PASHA: ASHA whose longest trials grow only while it matters (Bohdal et al., ICLR 2023).

It begins with the first two rungs. While the best trials rank at the highest open rung as they did
at the one below, longer training would not change the choice, so no trial goes further. When their
ranking differs, the next rung opens. At the end the best trial alone trains to its full length.

Rankings are compared softly: two values closer than the noise count as equal. As in the paper the
noise is the 90th percentile of the distance between pairs of trials whose curves cross and cross
back. Unlike in the paper curves are known at rungs only, and at most `NUM_COMPARED` of the best are
compared, so that a decision has a bounded cost.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from services.hpo.core.pruners.asha import AshaPause, is_exhausted, promotable
from services.hpo.core.pruners.base import end_of_paused
from services.hpo.core.strategies import Drop, Fork, Judgement, Promote, Verdict
from services.hpo.core.trials import Trials

NUM_COMPARED = 32
_NOISE_PERCENTILE = 90


@dataclass(frozen=True, slots=True)
class Pasha(AshaPause):
    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        # Slots forbid super() without arguments in such a dataclass.
        judgement = AshaPause.judge_value(self, trials, number, step, value)
        num_open = num_open_rungs(trials, self.steps)
        is_among_best = judgement.verdict is Verdict.CONTINUE and judgement.rank is not None
        if is_among_best and step not in self.steps[: num_open - 1]:
            reason = f"The best rank at step {step} as at the rung before: none goes further."
            return replace(judgement, verdict=Verdict.PAUSE, reason=reason)
        return judgement

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        num_open = num_open_rungs(trials, self.steps)
        # From the highest open rung no trial goes on, but the last one of the study.
        promoted = promotable(trials, self.steps[: num_open - 1], self.reduction_factor)
        if promoted is None and is_exhausted(trials, self.max_trials):
            return end_of_paused(trials, self.steps, group=0)
        return promoted


def num_open_rungs(trials: Trials, steps: tuple[int, ...]) -> int:
    """How many rungs are open, from 2; one more than there are means the full length.

    A rung at which a trial was measured has been open, whatever the ranking is now.
    """
    for place in range(1, len(steps)):
        has_been_open = place + 1 < len(steps) and trials.rung(steps[place + 1]).values
        if not has_been_open and _is_stable(trials, steps[: place + 1]):
            return place + 1
    return len(steps) + 1


def _is_stable(trials: Trials, steps: tuple[int, ...]) -> bool:
    """Whether the best at the last of these rungs rank as at the one before, within the noise."""
    best = [number for _, number in trials.rung(steps[-1]).ranked[:NUM_COMPARED]]
    if len(best) < 2:
        return True
    losses = np.array([[_loss(trials, number, step) for step in steps] for number in best])
    before = losses[:, -2]
    order = np.argsort(before, kind="stable")
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.abs(before - before[order])
    # Two trials without a value below are equal there.
    return bool((np.nan_to_num(distances, nan=0.0) <= _noise(losses)).all())


def _noise(losses: NDArray[np.float64]) -> float:
    """From curves (n, steps) of losses: how far apart trials are whose order is by chance."""
    first, second = np.triu_indices(len(losses), k=1)
    with np.errstate(invalid="ignore", over="ignore"):
        differences = losses[first] - losses[second]
    signs = np.sign(np.nan_to_num(differences, nan=0.0))
    crossings = (signs[:, 1:] * signs[:, :-1] < 0).sum(axis=1)
    distances = np.abs(differences[crossings >= 2, -1])
    distances = distances[np.isfinite(distances)]
    return float(np.percentile(distances, _NOISE_PERCENTILE)) if len(distances) else 0.0


def _loss(trials: Trials, number: int, step: int) -> float:
    measured = trials[number].at(step)
    if measured is None or measured.value is None:
        return float("inf")
    return trials.loss_of(measured.value)
