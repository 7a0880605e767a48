"""Time is cut into whole hours or days of UTC, without gaps, in whole microseconds."""

from datetime import UTC, date, datetime, timedelta

import pytest

from services.cost.core.steps import FAR_FUTURE, Step, Steps, days

MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
H = 3_600_000_000  # microseconds of an hour


def at(hours: float) -> datetime:
    return MIDNIGHT + hours * HOUR


HOURS = Steps(Step.HOUR, at(2), at(5))


@pytest.mark.parametrize(
    ("first", "last", "want"),
    [
        (2, 2, []),
        (2, 3, [(2, H)]),
        (2, 5, [(2, H), (3, H), (4, H)]),
        (2.5, 4.25, [(2, H // 2), (3, H), (4, H // 4)]),
        (2.25, 2.75, [(2, H // 2)]),
        (0, 1, [(None, H)]),
        (0, 2, [(None, 2 * H)]),
        (1, 3, [(None, H), (2, H)]),
        (4, 7, [(4, H), (None, 2 * H)]),
        (6, 7, [(None, H)]),
        (0, 7, [(None, 2 * H), (2, H), (3, H), (4, H), (None, 2 * H)]),
    ],
)
def test_time_is_cut_into_hours_and_one_piece_before_and_after_them(
    first: float, last: float, want: list[tuple[int | None, int]]
) -> None:
    found = list(HOURS.pieces(at(first), at(last)))
    assert found == [(None if hour is None else at(hour), length) for hour, length in want]
    assert all(isinstance(length, int) for _, length in found)


def test_days_begin_at_midnight_of_utc() -> None:
    found = list(Steps(Step.DAY).pieces(at(-1), at(25)))
    assert found == [(at(-24), H), (at(0), 24 * H), (at(24), H)]


def test_the_steps_that_have_begun() -> None:
    assert HOURS.begins(at(2)) == []
    assert HOURS.begins(at(3.5)) == [at(2), at(3)]
    assert HOURS.begins(at(9)) == [at(2), at(3), at(4)]


def test_days_are_those_from_the_first_to_the_last() -> None:
    found = days(date(2026, 2, 1), date(2026, 2, 2))
    assert found.begins(FAR_FUTURE) == [at(0), at(24)]
