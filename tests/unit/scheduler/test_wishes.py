"""One command about a job that exists: what it changes, and when it is refused."""

import pytest

from drivetrain_schemas.jobs import JobState
from services.scheduler.core.lifecycle import move_job
from services.scheduler.core.wishes import Accepted, Refused, Verb, Wish, answer

RUNNING, QUEUED, PAUSED = JobState.RUNNING, JobState.QUEUED, JobState.PAUSED

CASES = {
    "a running job is asked to stop": (Verb.STOP, RUNNING, None, Accepted(Wish.STOP)),
    "a waiting job stops at once": (
        Verb.STOP,
        QUEUED,
        None,
        Accepted(Wish.STOP, JobState.STOPPED),
    ),
    "a paused job stops at once": (Verb.STOP, PAUSED, None, Accepted(Wish.STOP, JobState.STOPPED)),
    "a stop outranks a pause": (Verb.STOP, RUNNING, Wish.PAUSE, Accepted(Wish.STOP)),
    "a cancel outranks a stop": (Verb.CANCEL, RUNNING, Wish.STOP, Accepted(Wish.CANCEL)),
    "a stop changes no cancel": (Verb.STOP, RUNNING, Wish.CANCEL, None),
    "a paused job can be cancelled": (
        Verb.CANCEL,
        PAUSED,
        None,
        Accepted(Wish.CANCEL, JobState.CANCELLED),
    ),
    "a running job is asked to pause": (Verb.PAUSE, RUNNING, None, Accepted(Wish.PAUSE)),
    "a waiting job is paused at once": (Verb.PAUSE, QUEUED, None, Accepted(Wish.PAUSE, PAUSED)),
    "a paused job is paused": (Verb.PAUSE, PAUSED, None, None),
    "one that is being stopped is not paused": (
        Verb.PAUSE,
        RUNNING,
        Wish.STOP,
        Refused("the job is being stopped"),
    ),
    "a paused job waits again": (Verb.RESUME, PAUSED, None, Accepted(None, QUEUED)),
    "a pause under way is withdrawn": (Verb.RESUME, RUNNING, Wish.PAUSE, Accepted(None)),
    "a running job needs no resume": (Verb.RESUME, RUNNING, None, None),
    "a waiting job needs no resume": (Verb.RESUME, QUEUED, None, None),
    "one that is being cancelled is not resumed": (
        Verb.RESUME,
        RUNNING,
        Wish.CANCEL,
        Refused("the job is being cancelled"),
    ),
}


@pytest.mark.parametrize(("verb", "state", "wish", "want"), CASES.values(), ids=CASES.keys())
def test_a_command(verb, state, wish, want):
    assert answer(verb, state, wish) == want


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("state", [state for state in JobState if state.is_final])
def test_a_finished_job_takes_no_command(verb, state):
    assert answer(verb, state, None) == Refused(f"the job has finished: {state}")


@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize(
    ("state", "wish"),
    # Without a run a wish is fulfilled at once, so none is left.
    [(QUEUED, None), (PAUSED, None), *((RUNNING, wish) for wish in (None, *Wish))],
)
def test_a_repeated_command_changes_nothing_more(verb, state, wish):
    first = answer(verb, state, wish)
    if isinstance(first, Accepted):
        then = move_job(state, first.state) if first.state else state
        # A pause is over once the job is paused.
        left = None if then is PAUSED else first.wish
        assert not isinstance(answer(verb, then, left), Accepted)
