"""Bounded retries with exponential backoff."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.pods import Failure, FailureKind
from drivetrain_schemas.runs import RunState
from services.scheduler.core.outcome import Outcome
from services.scheduler.core.pods import EndKind, EndReason, Exit, PodState, PodView, Sight
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


def ended_by(kind: EndKind, was_alive: bool = False) -> Outcome:
    pod = PodView("pod", 0, PodState.LOST, Sight.ABSENT, was_alive, reason=EndReason(kind, "why"))
    is_disrupted = kind in (EndKind.DISRUPTED, EndKind.REFUSED)
    state = RunState.INTERRUPTED if is_disrupted else RunState.FAILED
    return Outcome(state, pod, is_disrupted=is_disrupted)


def test_a_disruption_uses_no_retry_and_waits_only_if_nothing_had_started():
    tries = Tries(limit=0, backoff_seconds=0, backoff_limit_seconds=60)
    waits = []
    for was_alive in (False, False, False, True, False):
        then = after(ended_by(EndKind.DISRUPTED, was_alive), tries)
        waits.append(then.backoff_seconds)
        tries = then.tries

    assert waits == [5, 10, 20, 0, 5]


def test_one_that_could_not_be_created_waits_longer_at_first_and_uses_no_retry():
    tries = Tries(limit=0, backoff_seconds=1, backoff_limit_seconds=100)
    waits = []
    for _ in range(4):
        then = after(ended_by(EndKind.REFUSED), tries)
        waits.append(then.backoff_seconds)
        tries = then.tries

    assert waits == [30, 60, 100, 100]
    assert tries.num_failures == tries.num_self_interruptions == 0


def test_what_the_cluster_refuses_for_good_is_not_tried_again():
    assert after(ended_by(EndKind.FAILED), TRIES).tries.num_left == 4
    then = after(ended_by(EndKind.INVALID), TRIES)
    assert (then.backoff_seconds, then.why_not) == (None, "a retry cannot help")


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
    assert (
        second.why_not == "it ended two runs in a row at step 7, and the second saved nothing new"
    )


@pytest.mark.parametrize(
    ("kind", "detail", "step", "is_repeated"),
    [
        (FailureKind.SIGNAL, "was killed by signal 11 (SIGSEGV) in f (a.py:3)", 7, True),
        (FailureKind.SIGNAL, "was killed by signal 11 (SIGSEGV) in f (a.py:3)", None, False),
        (FailureKind.SIGNAL, "was killed by signal 9 (SIGKILL)", 7, False),
        (FailureKind.EXIT_CODE, "ended with exit code 3 after it printed: no data", 7, True),
        (FailureKind.EXIT_CODE, "ended with exit code 3 after it printed: no data", None, False),
    ],
)
def test_the_same_crash_at_the_same_step_twice_is_not_tried_again(kind, detail, step, is_repeated):
    first = after(failed_by(f"rank 0 {detail}", kind, step=step), TRIES)
    second = after(failed_by(f"rank 1 {detail}", kind, step=step), first.tries)

    assert (second.backoff_seconds is None) == is_repeated


@pytest.mark.parametrize(
    "again",
    [
        failed_by("ValueError: nan", step=7, has_saved=True),
        failed_by("ValueError: nan", step=8),
        failed_by("ValueError: inf", step=7),
        failed_by("ValueError: nan", FailureKind.OUTSIDE, step=7),
        failed_by("ValueError: nan", FailureKind.EXIT_CODE),
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
