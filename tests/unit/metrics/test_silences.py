"""Silences: which alerts they are of, how long, and which ones are refused."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from services.metrics.core.silences import (
    CLOCK_DIFFERENCE,
    About,
    Limits,
    Silence,
    is_of,
    refusal,
    silenced_until,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ABOUT = About("slower", "job_a", "p")
LIMITS = Limits(num_silences=2, duration=timedelta(days=7))
LONGEST = NOW + LIMITS.duration + CLOCK_DIFFERENCE


def silence(seconds: float = 1, **subject: str | None) -> Silence:
    of_all = {"alert": None, "job_id": None, "project": None}
    return Silence(**{**of_all, **subject}, ends_at=NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("alert", "job_id", "project"),
    [*product((None, "slower", "other"), (None, "job_a", "other"), (None, "p", "other"))],
)
def test_a_silence_is_of_an_alert_if_nothing_that_it_names_differs(
    alert: str | None, job_id: str | None, project: str | None
) -> None:
    found = silence(alert=alert, job_id=job_id, project=project)
    assert is_of(found, ABOUT) == ("other" not in (alert, job_id, project))


def test_an_alert_is_silenced_until_the_last_of_its_silences_ends() -> None:
    others = [silence(9, alert="stalled"), silence(0), silence(-1)]
    assert silenced_until(others, ABOUT, NOW) is None
    assert silenced_until([silence(1), silence(2), *others], ABOUT, NOW) == NOW + 2 * SECOND


@pytest.mark.parametrize(
    ("ends_at", "num_others", "reason"),
    [
        (NOW - SECOND, 0, "already_over"),
        (NOW, 0, "already_over"),
        (NOW + SECOND, 0, None),
        (LONGEST, 1, None),
        (LONGEST + SECOND, 0, "too_long"),
        (NOW + SECOND, 2, "too_many"),
        (NOW + SECOND, 3, "too_many"),
        (NOW, 2, "already_over"),
    ],
)
def test_a_silence_is_refused_that_is_over_too_long_or_one_too_many(
    ends_at: datetime, num_others: int, reason: str | None
) -> None:
    found = refusal(ends_at, NOW, num_others, LIMITS)
    assert (found and found.reason) == reason


def test_a_refusal_says_what_could_be_written() -> None:
    found = refusal(LONGEST + SECOND, NOW, 0, LIMITS)
    assert found is not None
    assert found.detail == "a silence lasts 7 days at most"
    assert found.fix == "write a time before 2026-01-08T00:00:00Z"
