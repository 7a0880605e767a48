"""ASHA: asynchronous successive halving (Li et al., 2020). No trial waits for another's result.

At each rung the best 1 of `reduction_factor` go on. `AshaStop` stops a trial that is not among them
at once, and lets the best so far go on even while few are measured. `AshaPause` is the algorithm of
the paper: a trial that is not among them pauses, and goes on when so many worse ones came after it
that it is. Equal values rank by number, the earlier first; but a value that none has beaten goes on
wherever one may, for where all are equal, the first of them says nothing against the others.
"""

from dataclasses import dataclass

from services.hpo.core.pruners.base import Base, end_of_paused, kept
from services.hpo.core.strategies import Drop, Fork, Judgement, Promote, Verdict
from services.hpo.core.trials import Rung, Trials, TrialState


@dataclass(frozen=True, slots=True)
class AshaStop(Base):
    reduction_factor: int

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        num_kept = max(1, _num_kept(trials, step, self.reduction_factor))
        return _judgement(trials, number, step, num_kept, Verdict.STOP)


@dataclass(frozen=True, slots=True)
class AshaPause(Base):
    """`max_trials`: after so many there are no new ones that could make more room at a rung."""

    reduction_factor: int
    max_trials: int

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        if _is_last(trials, self.max_trials, number) and _leads(trials, self.steps, number, step):
            reason = "It is the best, no other trial runs, and none is complete."
            return Judgement(Verdict.CONTINUE, reason)
        num_kept = _num_kept(trials, step, self.reduction_factor)
        return _judgement(trials, number, step, num_kept, Verdict.PAUSE)

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        promoted = promotable(trials, self.steps, self.reduction_factor)
        if promoted is None and is_exhausted(trials, self.max_trials):
            return end_of_paused(trials, self.steps, group=0)
        return promoted


def promotable(trials: Trials, steps: tuple[int, ...], reduction_factor: int) -> Promote | None:
    """The best paused trial of the highest of these rungs at which one is among the best."""
    for step in reversed(steps):
        rung = trials.rung(step)
        num_kept = _num_kept(trials, step, reduction_factor)
        # Those before it have been promoted; if this one is not among the best, no other is.
        if rung.paused and _is_among_best(rung, *rung.paused[0], num_kept):
            rank, num = rung.rank(*rung.paused[0]) + 1, len(rung.values)
            why = f"It is number {rank} of {num} at step {step}: {kept(num_kept)}."
            return Promote(rung.paused[0][1], why)
    return None


def is_exhausted(trials: Trials, max_trials: int) -> bool:
    """Whether nothing more will be measured unless a paused trial goes on."""
    return len(trials) >= max_trials and not trials.in_state(TrialState.RUNNING)


def _num_kept(trials: Trials, step: int, reduction_factor: int) -> int:
    return len(trials.rung(step).values) // reduction_factor


def _is_among_best(rung: Rung, loss: float, number: int, num_kept: int) -> bool:
    return rung.rank(loss, number) < num_kept or (num_kept > 0 and rung.is_unbeaten(loss))


def _is_last(trials: Trials, max_trials: int, number: int) -> bool:
    """Whether it is the only trial that could still become complete without being promoted."""
    return (
        len(trials) >= max_trials
        and trials.in_state(TrialState.RUNNING) == {number}
        and not trials.in_state(TrialState.COMPLETED)
    )


def _leads(trials: Trials, steps: tuple[int, ...], number: int, step: int) -> bool:
    """Whether `end_of_paused` would choose this trial, if it paused here."""
    if any(trials.rung(higher).paused for higher in steps if higher > step):
        return False
    paused = trials.rung(step).paused
    value = trials.rung(step).values[number]
    assert value is not None
    return not paused or (trials.loss_of(value), number) < paused[0]


def _judgement(
    trials: Trials, number: int, step: int, num_kept: int, otherwise: Verdict
) -> Judgement:
    rung = trials.rung(step)
    value = rung.values[number]
    assert value is not None
    loss = trials.loss_of(value)
    rank = rung.rank(loss, number)
    verdict = Verdict.CONTINUE if _is_among_best(rung, loss, number, num_kept) else otherwise
    threshold = None
    if 0 < num_kept <= len(rung.ranked):
        threshold = trials.loss_of(rung.ranked[num_kept - 1][0])
    reason = f"It is number {rank + 1} of {len(rung.values)} at step {step}: {kept(num_kept)}."
    return Judgement(verdict, reason, threshold, rank + 1, len(rung.values))
