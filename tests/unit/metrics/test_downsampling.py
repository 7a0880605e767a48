from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.downsampling import MIN_POINTS, _bucket_width, downsample
from services.metrics.core.series import Series


@st.composite
def series(draw: st.DrawFn) -> Series:
    steps = sorted(draw(st.sets(st.integers(0, 2**53), min_size=1, max_size=200)))
    values = draw(st.lists(st.floats(), min_size=len(steps), max_size=len(steps)))
    return Series(tuple(steps), tuple(values))


POINTS = st.integers(MIN_POINTS, 250)


@given(series(), POINTS)
def test_no_more_points_than_asked_for(given_series: Series, max_points: int) -> None:
    assert len(downsample(given_series, max_points).steps) <= max_points


@given(series(), POINTS)
def test_points_are_samples_in_their_order(given_series: Series, max_points: int) -> None:
    samples = {step: repr(value) for step, value in zip(*_columns(given_series), strict=True)}
    thinned = downsample(given_series, max_points)
    assert list(thinned.steps) == sorted(set(thinned.steps))
    for step, value in zip(*_columns(thinned), strict=True):
        assert samples[step] == repr(value)


@given(series(), POINTS)
def test_peaks_and_ends_stay(given_series: Series, max_points: int) -> None:
    thinned = downsample(given_series, max_points)
    assert thinned.steps[0] == given_series.steps[0]
    assert thinned.steps[-1] == given_series.steps[-1]
    finite = [value for value in given_series.values if isfinite(value)]
    if finite:
        assert max(finite) in thinned.values
        assert min(finite) in thinned.values
    assert all(map(isfinite, thinned.values)) == all(map(isfinite, given_series.values))


def test_a_short_series_is_left_alone() -> None:
    short = Series((1, 5, 9), (0.1, nan, inf))
    assert downsample(short, 5) is short


@pytest.mark.parametrize("spike", [0.0, 1e9, -1e9])
def test_a_single_spike_among_many_samples_is_seen(spike: float) -> None:
    values = [1.0] * 100_000
    values[54_321] = spike
    thinned = downsample(Series(tuple(range(100_000)), tuple(values)), 100)
    assert (54_321, spike) in zip(*_columns(thinned), strict=True)


def test_points_of_finished_buckets_stay_when_the_series_grows() -> None:
    """A live chart must not flicker: within one bucket width nothing old changes."""
    values = tuple(float((step * 7919) % 101) for step in range(2000))
    before = downsample(Series(tuple(range(1100)), values[:1100]), 200)
    after = downsample(Series(tuple(range(1900)), values[:1900]), 200)
    finished = 1100 // 32 * 32
    old = [step for step in before.steps if step < finished]
    assert old == [step for step in after.steps if step < finished]


def _columns(given_series: Series) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return given_series.steps, given_series.values


@pytest.mark.parametrize(
    ("first", "last", "max_buckets", "width"),
    [(0, 0, 1, 1), (0, 1, 1, 2), (0, 3, 4, 1), (0, 4, 4, 2), (1, 4, 2, 4), (15, 16, 1, 32)],
)
def test_the_width_is_the_smallest_power_of_two_that_needs_no_more_buckets(
    first: int, last: int, max_buckets: int, width: int
) -> None:
    assert _bucket_width(first, last, max_buckets) == width


def test_of_a_bucket_the_lowest_the_highest_and_the_first_that_is_no_number_stay() -> None:
    values = (5.0, 4.0, 6.0, 1.0, 9.0, inf, nan, 4.5, 4.0, 5.0)
    thinned = downsample(Series(tuple(range(10)), values), 8)
    assert thinned.steps == (0, 3, 4, 5, 8, 9)
    with pytest.raises(AssertionError, match="at least 5 points"):
        downsample(thinned, MIN_POINTS - 1)


def test_a_series_of_one_more_sample_is_thinned() -> None:
    six = Series(tuple(range(6)), (0.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    assert downsample(six, 6) is six
    assert downsample(six, MIN_POINTS).steps == (0, 5)


@pytest.mark.parametrize("steps", [(0, 100, 101, 102, 103, 104), (0, 1, 2, 3, 4, 104)])
def test_buckets_are_as_wide_as_all_steps_need(steps: tuple[int, ...]) -> None:
    rising = Series(steps, tuple(float(step) for step in steps))
    assert downsample(rising, MIN_POINTS).steps == (0, 104)
