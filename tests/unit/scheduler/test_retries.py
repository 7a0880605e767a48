"""Bounded retries with exponential backoff."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.runs import RunState
from services.scheduler.core.outcome import Outcome
from services.scheduler.core.retries import MAX_SELF_INTERRUPTIONS, Tries, after

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
