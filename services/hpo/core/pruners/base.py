"""What pruners share: the steps of their rungs, and a trial that has no value at one.

One rule holds for all of them: a trial without a value at a rung (its metric was not logged, or was
not a finite number) stops when another trial of its group has one there. Before that it goes on,
because the metric may be logged at no rung at all.
"""

from dataclasses import dataclass

from services.hpo.core.strategies import Drop, Fork, Judgement, Promote, Verdict
from services.hpo.core.trials import Trials, TrialState


def equal_steps(every_steps: int, max_steps: int) -> tuple[int, ...]:
    """The multiples of `every_steps` below `max_steps`."""
    return tuple(range(every_steps, max_steps, every_steps))


def growing_steps(min_steps: int, reduction_factor: int, max_steps: int) -> tuple[int, ...]:
    """`min_steps` times the powers of `reduction_factor`, below `max_steps`."""
    steps = []
    step = min_steps
    while step < max_steps:
        steps.append(step)
        step *= reduction_factor
    return tuple(steps)


def kept(num: int) -> str:
    """How many of a rung go on, as the end of a sentence."""
    if num == 0:
        return "none goes on yet"
    return "only the best goes on" if num == 1 else f"the best {num} go on"


@dataclass(frozen=True, slots=True)
class Base:
    """A pruner that only judges: no groups, nothing paused, nothing forked."""

    steps: tuple[int, ...]

    def group_of(self, number: int) -> int:
        return 0

    def steps_of(self, number: int) -> tuple[int, ...]:
        return self.steps

    def judge(self, trials: Trials, number: int, step: int) -> Judgement:
        measured = trials[number].at(step)
        if measured is None or measured.value is None:
            return _without_value(trials, self.group_of(number), step)
        return self.judge_value(trials, number, step, measured.value)

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        raise NotImplementedError

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        return None

    def may_propose(self, trials: Trials) -> bool:
        return True


def end_of_paused(trials: Trials, steps: tuple[int, ...], group: int) -> Promote | Drop | None:
    """What becomes of the group's paused trials when none of them can be among the best.

    While no trial of the study is complete, the best of those that came furthest goes on.
    """
    for step in reversed(steps):
        paused = trials.rung(step, group).paused
        if paused and trials.in_state(TrialState.COMPLETED):
            return Drop(paused[-1][1], f"It was not among the best at step {step}.")
        if paused:
            why = f"It is the best at step {step}, and no trial is complete."
            return Promote(paused[0][1], why)
    return None


def _without_value(trials: Trials, group: int, step: int) -> Judgement:
    num_others = len(trials.rung(step, group).ranked)
    if not num_others:
        return Judgement(Verdict.CONTINUE, f"No trial has a value at step {step} yet.")
    reason = f"It has no value at step {step}; {num_others} other trials have one."
    return Judgement(Verdict.STOP, reason, num_ranked=num_others)
