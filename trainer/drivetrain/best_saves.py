"""When a step is saved because its value of the judged metric is the best so far.

Pure. The rule: while saves at the best have taken less than a tenth of the time since the run
started, each improvement is saved; so the first one always is, and an early phase, in which every
evaluation is an improvement, does not save at each. An improvement during another save is not
saved either.

Ranks must agree at the very step of the value, because the next step changes the weights, and only
rank 0 knows what was logged. So with several ranks the steps of evaluations are predicted: after
two of them, `expected` is where the next one should be, and all ranks look there.
"""

from dataclasses import dataclass

MAX_SHARE = 0.1
_MAX_MISSED = 4


def may_save_best(run_seconds: float, spent_seconds: float) -> bool:
    """`spent_seconds`: what the saves at the best have taken, from the copy to the manifest."""
    return spent_seconds <= MAX_SHARE * run_seconds


@dataclass(slots=True)
class Evaluations:
    """The steps at which the judged metric was logged."""

    last: int = 0
    period: int = 0

    def logged(self, step: int) -> None:
        if step != self.last:
            self.period = max(0, step - self.last) if self.last else 0
            self.last = step

    def expected(self, step: int, least: int) -> int:
        """The first step of an evaluation that is later, by `least` steps or more; 0: not known.

        Not known either when several expected ones did not come.
        """
        if not self.period or step - self.last > _MAX_MISSED * self.period:
            return 0
        ahead = step - self.last + max(1, least)
        return self.last - (-ahead // self.period) * self.period
