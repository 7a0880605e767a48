"""Stacked bars: heights in proportion, the highest as high as the picture."""

from datetime import UTC, datetime, timedelta

import pytest

from services.gateway.core.bars import (
    BAR,
    HEIGHT,
    STEP,
    Line,
    Part,
    Piece,
    Step,
    amounts,
    hours,
    picture,
    stacked,
    time_text,
    times,
)

HOUR = 3_600_000_000
AT = datetime(2026, 1, 2, 9, tzinfo=UTC)


def test_bars_stand_beside_each_other_and_grow_from_the_bottom() -> None:
    found = stacked([[Part("used", 3, "a"), Part("idle", 1, "b")], [Part("used", 2, "c")]])
    assert found.pieces == (
        Piece("used", 0, HEIGHT / 4, HEIGHT * 3 / 4, "a"),
        Piece("idle", 0, 0.0, HEIGHT / 4, "b"),
        Piece("used", STEP, HEIGHT / 2, HEIGHT / 2, "c"),
    )
    assert (found.width, found.amounts[-1].text) == (STEP + BAR, "4")


def test_what_is_not_above_zero_is_not_drawn() -> None:
    found = stacked([[Part("idle", -2, "a"), Part("used", 4, "b"), Part("lost", 0, "c")], []])
    assert [piece.label for piece in found.pieces] == ["b"]
    assert stacked([]).width == 1


def test_a_picture_of_nothing_above_zero_has_its_width_and_no_bar() -> None:
    found = stacked([[Part("idle", 0, "a")], [Part("idle", -1, "b")]])
    assert (found.pieces, found.amounts, found.width) == ((), (), STEP + BAR)


def test_an_hour_that_is_not_over_is_an_average_of_what_has_passed_of_it() -> None:
    """Two slots in use: as high at six minutes past as in the hour before."""
    starts_at = (AT, AT + timedelta(hours=1))
    lines = [Line("idle", "use-idle", (2 * HOUR, HOUR // 5))]
    found = picture(starts_at, lines, "hour", AT + timedelta(minutes=66))
    assert [(piece.x, piece.height, piece.label) for piece in found.pieces] == [
        (0, HEIGHT, "Jan 2, 09:00: 2.0 slot hours idle"),
        (STEP, HEIGHT, "Jan 2, 10:00: 0.2 slot hours idle so far"),
    ]
    assert found.amounts[-1].text == "2"


def test_a_day_is_as_high_as_its_slots_on_average() -> None:
    midnight = AT.replace(hour=0)
    found = picture(
        (midnight,), [Line("idle", "use-idle", (72 * HOUR,))], "day", AT.replace(year=2027)
    )
    assert [mark.text for mark in found.amounts] == ["0", "1", "2", "3"]
    assert found.pieces[0].label == "Jan 2: 72.0 slot hours idle"


@pytest.mark.parametrize(
    ("most", "texts", "lowest"),
    [
        (36.0, "0 10 20 30", 16.67),
        (2.0, "0 0.5 1 1.5 2", 0),
        (0.31, "0 0.1 0.2 0.3", 3.23),
        (7e-05, "0 2e-5 4e-5 6e-5", 14.29),
        (1, "0 0.5 1", 0),
    ],
)
def test_the_axis_of_amounts_has_a_few_round_ones(most: float, texts: str, lowest: float) -> None:
    found = amounts(most)
    assert [mark.text for mark in found] == texts.split()
    assert (found[0].percent, found[-1].percent) == (100, lowest)


@pytest.mark.parametrize(
    ("num", "step", "texts"),
    [
        (1, "hour", ["Jan 2, 00:00"]),
        (
            13,
            "hour",
            ["Jan 2, 00:00", "Jan 2, 03:00", "Jan 2, 06:00", "Jan 2, 09:00", "Jan 2, 12:00"],
        ),
        (168, "hour", ["Jan 2", "Jan 4", "Jan 6", "Jan 8"]),
        (31, "day", ["Jan 2", "Jan 8", "Jan 14", "Jan 20", "Jan 26", "Feb 1"]),
    ],
)
def test_the_axis_of_times_has_at_most_six(num: int, step: Step, texts: list[str]) -> None:
    first = AT.replace(hour=0)
    length = timedelta(hours=1) if step == "hour" else timedelta(days=1)
    found = times([first + number * length for number in range(num)], step)
    assert [mark.text for mark in found] == texts
    assert all(0 < mark.percent < 100 for mark in found)


@pytest.mark.parametrize(("step", "text"), [("hour", "Jan 2, 09:00"), ("day", "Jan 2")])
def test_the_text_of_a_moment_is_as_fine_as_its_step(step: Step, text: str) -> None:
    assert time_text(AT, step) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.0"),
        (HOUR * 2469 // 2, "1,234.5"),
        (HOUR, "1.0"),
        (HOUR // 25, "0.04"),
        (216_000, "6e-5"),
        (-HOUR // 3, "-0.33"),
    ],
)
def test_hours_of_little_use_are_not_zero(amount: int, text: str) -> None:
    assert hours(amount) == text
