"""Whether a job is tried again after a run without success, and how long it waits first.

A failed or lost run uses one retry, and each wait is twice the last one, up to the job's limit. An
interrupted run uses none: requested by the platform, it returns to the queue immediately; a program
that interrupts itself backs off as well, and counts as failed after `MAX_SELF_INTERRUPTIONS`.
"""

from dataclasses import dataclass, replace

from drivetrain_schemas.runs import RunState
from services.scheduler.core.outcome import Outcome

MAX_SELF_INTERRUPTIONS = 20


@dataclass(frozen=True, slots=True)
class Tries:
    """The retries that the job may use, and those it has used."""

    limit: int
    backoff_seconds: float
    backoff_limit_seconds: float
    num_failures: int = 0
    num_self_interruptions: int = 0

    @property
    def num_left(self) -> int:
        return max(0, self.limit - self.num_failures)


@dataclass(frozen=True, slots=True)
class Next:
    """`backoff_seconds` None: there is no further run."""

    tries: Tries
    backoff_seconds: float | None


def after(outcome: Outcome, tries: Tries) -> Next:
    assert outcome.state in (RunState.FAILED, RunState.LOST, RunState.INTERRUPTED)
    if outcome.state is RunState.INTERRUPTED:
        if outcome.is_asked:
            return Next(tries, 0.0)
        if tries.num_self_interruptions < MAX_SELF_INTERRUPTIONS:
            used = replace(tries, num_self_interruptions=tries.num_self_interruptions + 1)
            return Next(used, _backoff(used, used.num_self_interruptions))
    if tries.num_left == 0:
        return Next(tries, None)
    used = replace(tries, num_failures=tries.num_failures + 1)
    return Next(used, _backoff(used, used.num_failures))


def _backoff(tries: Tries, number: int) -> float:
    # The exponent is bounded, because 2.0**1024 overflows.
    return float(
        min(tries.backoff_limit_seconds, tries.backoff_seconds * 2.0 ** min(number - 1, 60))
    )
