"""Synchronous successive halving of one cohort of trials (Jamieson and Talwalkar, 2016).

The trials of a cohort pause at a rung until all that can come have come; then the best 1 of
`reduction_factor` go on together. How many these are follows from the cohort's size alone: of 9
trials and a factor of 3, 3 go on from the first rung and 1 from the second. A trial that failed on
its way leaves its place to the next best. A trial stops at once when as many better ones have been
measured as may go on, and goes on at once when it must be one of them.
"""

from dataclasses import dataclass

from services.hpo.core.pruners.base import end_of_paused, kept
from services.hpo.core.strategies import Drop, Judgement, Promote, Verdict
from services.hpo.core.trials import Trials, TrialState


@dataclass(frozen=True, slots=True)
class Cohort:
    """Trials that are ranked among each other, from `first` to before `end`."""

    group: int
    first: int
    end: int
    steps: tuple[int, ...]
    reduction_factor: int

    def num_kept(self, step: int) -> int:
        """How many go on from this rung."""
        return max(1, self._size_at(step) // self.reduction_factor)

    def judge(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        rung = trials.rung(step, self.group)
        rank, num_kept = rung.rank(trials.loss_of(value), number), self.num_kept(step)
        num_to_come = max(0, self._size_at(step) - len(rung.values))
        threshold = None
        if num_kept <= len(rung.ranked):
            threshold = trials.loss_of(rung.ranked[num_kept - 1][0])
        if rank >= num_kept:
            verdict, rest = Verdict.STOP, f"{kept(num_kept)}, and as many are better."
        elif rank + num_to_come < num_kept:
            verdict, rest = Verdict.CONTINUE, f"{kept(num_kept)}."
        else:
            verdict, rest = Verdict.PAUSE, f"{kept(num_kept)}, and {num_to_come} more may come."
        reason = f"It is number {rank + 1} of {len(rung.values)} at step {step}: {rest}"
        return Judgement(verdict, reason, threshold, rank + 1, len(rung.values))

    def next(self, trials: Trials, is_last: bool) -> Promote | Drop | None:
        """The next of its paused trials that goes on, or never will; `is_last`: no others run.

        Until a trial of the study is complete, the paused trials of a finished cohort are kept.
        """
        if len(trials) < self.end:
            return None
        on_the_way = [
            trials[number].measured[-1].step if trials[number].measured else -1
            for number in trials.in_state(TrialState.RUNNING)
            if self.first <= number < self.end
        ]
        slowest = min(on_the_way, default=None)
        for step in self.steps:
            if slowest is not None and slowest < step:
                return None
            rung = trials.rung(step, self.group)
            if rung.paused and rung.rank(*rung.paused[0]) < self.num_kept(step):
                rank, num = rung.rank(*rung.paused[0]) + 1, len(rung.values)
                why = f"It is number {rank} of {num} at step {step}: {kept(self.num_kept(step))}."
                return Promote(rung.paused[0][1], why)
        if slowest is not None or not (is_last or trials.in_state(TrialState.COMPLETED)):
            return None
        return end_of_paused(trials, self.steps, self.group)

    def _size_at(self, step: int) -> int:
        size = self.end - self.first
        for _ in range(self.steps.index(step)):
            size = max(1, size // self.reduction_factor)
        return size
