"""Values keep within their bounds, whatever the bits; grids have each point once and in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.hpo.core.parameters import unit_of, value_at
from services.hpo.core.space import (
    NUM_BITS,
    Choice,
    Integer,
    Uniform,
    draw,
    grid_points,
    make_space,
)

ALL_BITS = st.integers(min_value=0, max_value=2**NUM_BITS - 1)
LIMIT = 2**53


@st.composite
def uniforms(draw_from: st.DrawFn) -> Uniform:
    log = draw_from(st.booleans())
    floor = 5e-324 if log else -1.7e308
    ends = st.floats(min_value=floor, max_value=1.7e308)
    low, high = sorted((draw_from(ends), draw_from(ends)))
    num = draw_from(st.integers(2, 40))
    return Uniform(low, high, log, num)


@st.composite
def integers(draw_from: st.DrawFn) -> Integer:
    log = draw_from(st.booleans())
    ends = st.integers(1 if log else -LIMIT, LIMIT)
    low, high = sorted((draw_from(ends), draw_from(ends)))
    return Integer(low, high, log, draw_from(st.integers(2, 40)))


@given(uniforms(), ALL_BITS)
def test_a_real_number_keeps_within_its_bounds(parameter: Uniform, bits: int) -> None:
    value = draw(parameter, bits)
    assert isinstance(value, float)
    assert parameter.low <= value <= parameter.high


@given(integers(), ALL_BITS)
def test_a_whole_number_keeps_within_its_bounds(parameter: Integer, bits: int) -> None:
    value = draw(parameter, bits)
    assert type(value) is int
    assert parameter.low <= value <= parameter.high


@given(st.one_of(uniforms(), integers()))
def test_a_grid_reaches_from_end_to_end_in_growing_order(parameter: Uniform | Integer) -> None:
    points = grid_points(parameter)
    assert points[0] == parameter.low
    assert points[-1] == parameter.high
    assert list(points) == sorted(set(points))
    assert parameter.num is not None
    assert len(points) <= parameter.num


@pytest.mark.parametrize(
    ("parameter", "want"),
    [
        pytest.param(Uniform(0.0, 1.0, num=5), (0.0, 0.25, 0.5, 0.75, 1.0), id="linear reals"),
        pytest.param(
            Uniform(1e-4, 1.0, log=True, num=5), (1e-4, 1e-3, 1e-2, 0.1, 1.0), id="reals in decades"
        ),
        pytest.param(Integer(1, 4, num=4), (1, 2, 3, 4), id="whole numbers"),
        pytest.param(Integer(1, 3, num=9), (1, 2, 3), id="fewer whole numbers than points"),
        pytest.param(Integer(1, 64, log=True, num=4), (1, 4, 16, 64), id="powers"),
        pytest.param(Choice(("a", "b", "a")), ("a", "b"), id="a choice given twice"),
        pytest.param(Choice((1, 1.0, True)), (1, 1.0, True), id="equal values of three types"),
    ],
)
def test_grid_points(parameter: Uniform | Integer | Choice, want: tuple[object, ...]) -> None:
    points = grid_points(parameter)
    assert points == want
    assert [type(point) for point in points] == [type(point) for point in want]


def test_the_whole_range_is_reached() -> None:
    highest = 2**NUM_BITS - 1
    assert draw(Integer(1, 3), 0) == 1
    assert draw(Integer(1, 3), highest) == 3
    assert draw(Integer(1, 8, log=True), 0) == 1
    assert draw(Integer(1, 8, log=True), highest) == 8
    assert draw(Choice(("a", "b")), highest) == "b"
    assert draw(Uniform(0.0, 1.0), 0) == 0.0


def test_real_numbers_are_rounded_to_twelve_digits() -> None:
    value = draw(Uniform(1e-5, 1e-1, log=True), 2**NUM_BITS // 3)
    assert value == float(f"{value:.12g}")


def test_a_space_does_not_know_the_order_it_was_written_in() -> None:
    rate, width = Uniform(0.0, 1.0), Integer(1, 9)
    assert make_space({"b": rate, "a": width}) == make_space({"a": width, "b": rate})


@given(st.one_of(uniforms(), integers()), ALL_BITS)
def test_a_value_has_its_place_and_the_place_its_value(
    parameter: Uniform | Integer, bits: int
) -> None:
    value = draw(parameter, bits)
    unit = unit_of(parameter, value)
    assert 0.0 <= unit <= 1.0
    back = value_at(parameter, unit)
    assert parameter.low <= back <= parameter.high
    # As near as the range allows: a place has 53 bits.
    assert unit_of(parameter, back) == pytest.approx(unit, abs=1e-9)
    is_linear = isinstance(parameter, Integer) and not parameter.log
    if is_linear and parameter.high - parameter.low < 2**20:
        assert back == value


@given(st.integers(1, 10**6), st.integers(1, 10**6), ALL_BITS)
def test_a_whole_number_on_a_log_scale_is_found_again(one: int, other: int, bits: int) -> None:
    parameter = Integer(min(one, other), max(one, other), log=True)
    value = draw(parameter, bits)
    assert value_at(parameter, unit_of(parameter, value)) == value
