"""Which steps are saved because of their value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.best_saves import MAX_SHARE, Evaluations, may_save_best

FIRST = 23


@given(period=st.integers(1, 500), count=st.integers(2, 50), least=st.integers(0, 2000))
def test_evaluations_at_regular_steps_are_expected(period: int, count: int, least: int) -> None:
    evaluations = Evaluations()
    for number in range(count):
        evaluations.logged(FIRST + number * period)
        evaluations.logged(FIRST + number * period)  # a second value of the same step
    step = evaluations.last
    expected = evaluations.expected(step, least)
    assert expected > step
    assert (expected - FIRST) % period == 0
    assert step + least <= expected < step + max(1, least) + period


@pytest.mark.parametrize(
    ("logged", "step"),
    [
        pytest.param((), 10, id="none yet"),
        pytest.param((10,), 12, id="only one"),
        pytest.param((10, 20), 61, id="they stopped"),
        pytest.param((20, 10), 12, id="a step that goes back"),
    ],
)
def test_without_a_period_none_is_expected(logged: tuple[int, ...], step: int) -> None:
    evaluations = Evaluations()
    for each in logged:
        evaluations.logged(each)
    assert evaluations.expected(step, 0) == 0


def test_an_expected_evaluation_between_two_others_is_still_expected() -> None:
    evaluations = Evaluations()
    evaluations.logged(10)
    evaluations.logged(20)
    assert [evaluations.expected(step, 0) for step in (20, 29, 30, 35)] == [30, 30, 40, 40]


def test_saves_at_the_best_take_a_bounded_share_of_the_time() -> None:
    """Each step takes a second and improves, and each save takes three."""
    spent, saves = 0.0, 0
    for second in range(1, 1001):
        if may_save_best(second, spent):
            spent, saves = spent + 3.0, saves + 1
        assert spent <= MAX_SHARE * second + 3.0
    assert saves >= 30  # and the share is used
    assert may_save_best(0.001, 0.0)  # the first one always
