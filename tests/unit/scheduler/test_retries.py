"""Bounded retries with exponential backoff."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.pods import Failure, FailureKind
from drivetrain_schemas.runs import RunState
from services.scheduler.core.outcome import Outcome
from services.scheduler.core.pods import Exit, PodState, PodView, Sight
from services.scheduler.core.retries import MAX_SELF_INTERRUPTIONS, Tries, after

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = Outcome(RunState.FAILED)
TRIES = Tries(limit=5, backoff_seconds=1, backoff_limit_seconds=10)


def test_each_wait_is_twice_the_last_up_to_the_limit():
    waits, tries = [], TRIES
    while (then := after(FAILED, tries)).backoff_seconds is not None:
        waits.append(then.backoff_seconds)
        tries = then.tries

    assert waits == [1, 2, 4, 8, 10]


def test_a_lost_run_uses_a_retry_too():
    assert after(Outcome(RunState.LOST), TRIES).tries.num_left == 4


def test_no_retries_means_one_run():
    assert after(FAILED, replace(TRIES, limit=0)).backoff_seconds is None


def test_an_interruption_by_the_platform_costs_nothing():
    then = after(Outcome(RunState.INTERRUPTED, is_asked=True), replace(TRIES, limit=0))

    assert then.backoff_seconds == 0
    assert then.tries.num_left == 0


def test_a_program_that_interrupts_itself_for_ever_fails_in_the_end():
    tries = replace(TRIES, limit=0)
    num_runs = 1
    while (then := after(Outcome(RunState.INTERRUPTED), tries)).backoff_seconds is not None:
        tries = then.tries
        num_runs += 1

    assert num_runs == MAX_SELF_INTERRUPTIONS + 1


def failed_by(detail: str, kind: FailureKind = FailureKind.EXCEPTION, **facts) -> Outcome:
    end = Exit("failed", NOW, detail=detail, failure=Failure(kind=kind, **facts))
    pod = PodView("pod", 0, PodState.ENDED, Sight.ENDED, exit=end)
    return Outcome(RunState.FAILED, pod)


def test_a_program_that_cannot_run_is_not_tried_again():
    then = after(failed_by("ModuleNotFoundError: x", FailureKind.INVALID), TRIES)

    assert (then.backoff_seconds, then.why_not) == (None, "a retry cannot help")


def test_the_same_exception_at_the_same_step_twice_is_not_tried_again():
    first = after(failed_by("rank 0: ValueError: nan", step=7, has_saved=True), TRIES)
    second = after(failed_by("rank 1: ValueError: nan", step=7), first.tries)

    assert first.backoff_seconds == 1
    assert second.backoff_seconds is None
    assert second.why_not == "it ended two runs in a row at step 7, without a new checkpoint"


@pytest.mark.parametrize(
    "again",
    [
        failed_by("ValueError: nan", step=7, has_saved=True),
        failed_by("ValueError: nan", step=8),
        failed_by("ValueError: inf", step=7),
        failed_by("ValueError: nan", FailureKind.OUTSIDE, step=7),
        failed_by("ValueError: nan", FailureKind.EXIT_CODE, step=7),
        FAILED,
    ],
    ids=["new checkpoint", "another step", "another message", "outside", "no exception", "unknown"],
)
def test_any_other_failure_is_tried_again(again):
    first = after(failed_by("ValueError: nan", step=7), TRIES)

    assert after(again, first.tries).backoff_seconds == 2


@given(
    st.builds(
        Tries,
        st.integers(0, 100),
        st.floats(0, 3600),
        st.floats(0, 86_400),
        st.integers(0, 100),
    )
)
def test_waits_and_retries_stay_in_their_bounds(tries):
    then = after(FAILED, tries)

    if then.backoff_seconds is None:
        assert tries.num_failures >= tries.limit
    else:
        assert 0 <= then.backoff_seconds <= tries.backoff_limit_seconds
        assert then.tries.num_failures <= tries.limit
