"""What is told of a run whose pods do not run yet, and when that is news."""

import pytest

from drivetrain_schemas.runs import WaitCause
from services.scheduler.core.waits import MAX_DETAIL, Wait, foremost, is_news, wait_of

PULLING = Wait(WaitCause.PULLING, "n1", "node n1 pulls the image")
REFUSED = Wait(WaitCause.REFUSED, "quota few", "refused (quota few): 1 of 2 used")
OTHER_WORDS = Wait(WaitCause.REFUSED, "quota few", "refused (quota few): 2 of 2 used")
BY_ANOTHER = Wait(WaitCause.REFUSED, "quota all", "refused (quota all)")


def test_what_keeps_a_pod_from_existing_is_told_first() -> None:
    assert foremost([None, PULLING, REFUSED, OTHER_WORDS]) is REFUSED
    assert foremost([PULLING, None]) is PULLING
    assert foremost([None]) is None
    assert foremost([]) is None


@pytest.mark.parametrize(
    ("told", "now", "seconds", "want"),
    [
        (None, None, 100.0, False),
        (None, REFUSED, 0.0, True),
        (REFUSED, None, 0.0, True),
        (REFUSED, REFUSED, 100.0, False),
        (PULLING, REFUSED, 0.0, True),
        (REFUSED, BY_ANOTHER, 0.0, True),
        (REFUSED, OTHER_WORDS, 9.9, False),
        (REFUSED, OTHER_WORDS, 10.0, True),
    ],
)
def test_other_words_for_the_same_cause_are_no_news_at_once(
    told: Wait | None, now: Wait | None, seconds: float, want: bool
) -> None:
    assert is_news(told, now, seconds) is want


def test_words_are_bounded_and_can_be_stored() -> None:
    wait = wait_of(WaitCause.REFUSED, "b" * 400, "\0" + "x" * 2000)
    assert len(wait.by) == 300
    assert len(wait.detail) <= MAX_DETAIL
    assert "\0" not in wait.detail
