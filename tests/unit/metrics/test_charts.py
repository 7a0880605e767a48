"""Points of charts: widths, exact samples, positions."""

import json
from math import inf, nan

import pytest

from services.metrics.core.buckets import cut
from services.metrics.core.charts import (
    MAX_POINTS,
    MIN_POINTS,
    Curve,
    Position,
    draw,
    points_per_series,
    read_position,
    width_for,
)
from services.metrics.core.series import Series
from services.metrics.series.chart_json import encode


@pytest.mark.parametrize(
    ("first", "last", "max_points", "width"),
    [
        (0, 0, 500, 1),
        (0, 499, 500, 1),
        (0, 500, 500, 2),
        (0, 99_999, 200, 512),
        (7, 8, 8, 1),
        (1, 16, 8, 4),
        (0, 15, 8, 2),
        (15, 16, 1, 32),
        (3, 3, 1, 1),
        (2, 3, 1, 2),
    ],
)
def test_the_width_is_the_smallest_power_of_two(first, last, max_points, width) -> None:
    assert width_for(first, last, max_points) == width


def test_many_series_share_the_points_of_an_answer() -> None:
    assert points_per_series(500, 1) == 500
    assert points_per_series(500, 50) == MAX_POINTS // 50


def test_points_of_samples_and_of_their_buckets_are_the_same() -> None:
    series = Series(tuple(range(100)), tuple(float(step % 7) for step in range(100)))
    buckets = cut(series.steps, series.values, 4)
    direct = draw(series, 16, is_exact=False)
    assert draw(buckets, 16, is_exact=False).lows == direct.lows
    assert draw(buckets, 16, is_exact=False).steps == direct.steps == (0, 16, 32, 48, 64, 80, 96)


def test_exact_samples_are_written_in_full_and_points_with_six_digits() -> None:
    value = 0.12345678901234
    series = Series((0, 1, 2), (value, nan, inf))
    curves = {
        "exact": draw(series, 1, is_exact=True),
        "points": draw(series, 4, is_exact=False),
    }
    answer = {name: json.loads(bytes(raw)) for name, raw in encode(curves, {"points": 8}).items()}
    assert answer["steps"] == [[0, 1, 2], [0]]
    assert answer["series"]["exact"] == {
        "steps": 0,
        "from_step": 0,
        "values": [value, None, None],
        "lows": None,
        "highs": None,
        "not_finite": [1, 2],
    }
    assert answer["series"]["points"] == {
        "steps": 1,
        "from_step": 8,
        "values": [0.123457],
        "lows": [0.123457],
        "highs": [0.123457],
        "not_finite": [1],
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_234_567_890.0, "1234567890"),
        (-1_234_567.5, "-1234568"),
        (float(2**49), "562949953421312"),
        (1.5e300, "1.5e+300"),
        (999_999.4, "999999"),
        (2 / 3, "0.666667"),
    ],
)
def test_a_counter_is_drawn_to_the_whole_number(value: float, text: str) -> None:
    curve = draw(Series((0, 1), (value, value)), 4, is_exact=False)
    series = bytes(encode({"tokens": curve}, {})["series"]).decode()
    assert series.count(f"[{text}]") == 3


def test_series_of_equal_steps_share_them() -> None:
    curves = {name: draw(Series((1, 2), (0.0, 1.0)), 1, is_exact=True) for name in "abc"}
    assert json.loads(bytes(encode(curves, {})["steps"])) == [[1, 2]]


def test_a_position_is_read_as_it_was_written_and_nothing_else_is() -> None:
    position = Position(chunk=12, width=512, max_points=200, view=99)
    assert read_position(str(position)) == position
    for text in ("", "1.2.3", "1.2.3.4.5", "1.2.3.x", "1.2.3.4 "):
        assert read_position(text) is None


@pytest.mark.parametrize(
    ("max_points", "num_series", "points"),
    [
        (500, 0, 500),
        (MAX_POINTS + 1, 1, MAX_POINTS),
        (1, 1, MIN_POINTS),
        (500, MAX_POINTS, MIN_POINTS),
        (9, MAX_POINTS // 9, 9),
        (MAX_POINTS, 7, 1428),
    ],
)
def test_a_series_has_neither_too_many_points_nor_too_few(
    max_points: int, num_series: int, points: int
) -> None:
    assert points_per_series(max_points, num_series) == points


def test_a_point_stands_at_the_begin_of_its_bucket_with_its_mean_and_both_ends() -> None:
    series = Series((3, 5, 6, 9), (1.0, 2.0, 4.0, nan))
    assert draw(series, 4, is_exact=False) == Curve(
        (0, 4, 8), [1.0, 3.0, None], [1.0, 2.0, None], [1.0, 4.0, None], (9,)
    )
    assert draw(series, 4, is_exact=True) == Curve(
        series.steps, [1.0, 2.0, 4.0, None], not_finite=(9,)
    )
    wide = draw(cut(series.steps, series.values, 4), 8, is_exact=False)
    assert wide == Curve((0, 8), [pytest.approx(7 / 3), None], [1.0, None], [4.0, None], (9,))
    zero = draw(Series((0,), (nan,)), 4, is_exact=False)
    assert zero.not_finite == (0,)
