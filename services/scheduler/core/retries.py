"""Whether a job is tried again after a run without success, and how long it waits first.

A failed or lost run uses one retry, and each wait is twice the last one, up to the job's limit. An
interrupted run uses none: requested by the platform, it returns to the queue immediately; a program
that interrupts itself backs off as well, and counts as failed after `MAX_SELF_INTERRUPTIONS`. One
whose pod was ended by what runs the pods returns immediately too, or, if that pod had not even
started, after a wait that doubles each time in a row. A pod that could not be created is one of
these; the operator has to mend that, so the first wait is longer.

What cannot pass is not tried again: a program that cannot run as it is, and a failure that ended
two runs in a row at the same step while the second one saved nothing new: no checkpoint, and no
files of its own if it tells no step. A program that crashes or exits counts only if it has told its
step: another one may go on from a snapshot of its own.
"""

import re
from dataclasses import dataclass, replace

from drivetrain_schemas.pods import FailureKind
from drivetrain_schemas.runs import RunState
from services.scheduler.core.outcome import Outcome
from services.scheduler.core.pods import EndKind

MAX_SELF_INTERRUPTIONS = 20
MIN_DISRUPTION_SECONDS = 5.0  # a job without backoff must not fill the topic while a quota is full
MIN_REFUSED_SECONDS = 30.0  # the slots are held again after that
_REPEATABLE = (FailureKind.EXCEPTION, FailureKind.OUT_OF_MEMORY)
_REPEATABLE_AT_A_STEP = (FailureKind.EXIT_CODE, FailureKind.SIGNAL)
_RANK = re.compile(r"^rank \d+:? ")
# From outside, so nothing is known of the program.
_KILLED = re.compile(r"\(SIG(?:KILL|TERM|INT|HUP)\)")


@dataclass(frozen=True, slots=True)
class Tries:
    """The retries that the job may use, and those it has used.

    `last_failure` identifies the last run's exception and its step; empty where it had none.
    """

    limit: int
    backoff_seconds: float
    backoff_limit_seconds: float
    num_failures: int = 0
    num_self_interruptions: int = 0
    last_failure: str = ""
    num_disruptions: int = 0

    @property
    def num_left(self) -> int:
        return max(0, self.limit - self.num_failures)


@dataclass(frozen=True, slots=True)
class Next:
    """`backoff_seconds` None: there is no further run; `why_not`, where retries were left."""

    tries: Tries
    backoff_seconds: float | None
    why_not: str = ""


def after(outcome: Outcome, tries: Tries) -> Next:
    assert outcome.state in (RunState.FAILED, RunState.LOST, RunState.INTERRUPTED)
    if outcome.state is RunState.INTERRUPTED:
        if outcome.is_asked:
            return Next(tries, 0.0)
        if outcome.is_disrupted:
            return _after_disruption(outcome, tries)
        if tries.num_self_interruptions < MAX_SELF_INTERRUPTIONS:
            used = replace(tries, num_self_interruptions=tries.num_self_interruptions + 1)
            return Next(used, _backoff(used, used.num_self_interruptions))
    if tries.num_left == 0:
        return Next(tries, None)
    if why_not := _why_hopeless(outcome, tries):
        return Next(tries, None, why_not)
    used = replace(tries, num_failures=tries.num_failures + 1, last_failure=_identify(outcome))
    return Next(used, _backoff(used, used.num_failures))


def _after_disruption(outcome: Outcome, tries: Tries) -> Next:
    assert outcome.cause is not None
    if outcome.cause.was_alive:
        return Next(replace(tries, num_disruptions=0), 0.0)
    used = replace(tries, num_disruptions=tries.num_disruptions + 1)
    least = MIN_REFUSED_SECONDS if outcome.is_refused else MIN_DISRUPTION_SECONDS
    first = max(least, tries.backoff_seconds)
    limit = max(least, tries.backoff_limit_seconds)
    return Next(used, _doubled(first, limit, used.num_disruptions))


def _why_hopeless(outcome: Outcome, tries: Tries) -> str:
    reason = None if outcome.cause is None else outcome.cause.reason
    if reason is not None and reason.kind is EndKind.INVALID:
        return "a retry cannot help"
    failure = outcome.failure
    if failure is None:
        return ""
    if failure.kind is FailureKind.INVALID:
        return "a retry cannot help"
    identity = _identify(outcome)
    if identity and identity == tries.last_failure and not failure.has_saved:
        where = "" if failure.step is None else f" at step {failure.step}"
        return f"it ended two runs in a row{where}, and the second saved nothing new"
    return ""


def _identify(outcome: Outcome) -> str:
    failure = outcome.failure
    if failure is None:
        return ""
    assert outcome.cause is not None
    assert outcome.cause.exit is not None
    detail = outcome.cause.exit.detail
    is_repeatable = failure.kind in _REPEATABLE
    if failure.kind in _REPEATABLE_AT_A_STEP and failure.step is not None:
        is_repeatable = not _KILLED.search(detail)
    # Whichever rank was the first: all of them run the same program.
    return f"{failure.step} {_RANK.sub('', detail)}" if is_repeatable else ""


def _backoff(tries: Tries, number: int) -> float:
    return _doubled(tries.backoff_seconds, tries.backoff_limit_seconds, number)


def _doubled(first: float, limit: float, number: int) -> float:
    # The exponent is bounded, because 2.0**1024 overflows.
    return float(min(limit, first * 2.0 ** min(number - 1, 60)))
