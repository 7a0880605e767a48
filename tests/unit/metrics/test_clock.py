"""Which points of (step, time) are kept of a run, and how well they tell the time of every step."""

from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.clock import MIN_SECONDS, SHARE_OF_AGE, Clock, Point, advance

PAUSES = st.one_of(st.floats(0.001, 3), st.floats(0.001, 5000))


def run(pauses: list[float]) -> tuple[list[Point], list[Point]]:
    """All points of a run with a step after each pause, and those that are kept."""
    clock: Clock | None = None
    reported, kept, at = [], [], 1.7e9
    for step, pause in enumerate(pauses, start=1):
        at += pause
        reported.append(Point(step, at))
        clock, points = advance(clock, step, at)
        kept += points
    assert clock is not None
    return reported, [*kept, clock.newest]


@given(st.lists(PAUSES, min_size=1, max_size=300))
def test_the_time_of_each_step_is_told_within_a_pixel(pauses: list[float]) -> None:
    reported, kept = run(pauses)
    began = reported[0].at
    for point in reported:
        before = max((one for one in kept if one.step <= point.step), key=lambda one: one.step)
        after = min((one for one in kept if one.step >= point.step), key=lambda one: one.step)
        share = (point.step - before.step) / max(1, after.step - before.step)
        told = before.at + share * (after.at - before.at)
        assert abs(told - point.at) <= max(1.0, SHARE_OF_AGE * (point.at - began)) * 2.001


def test_few_points_are_kept_of_a_long_run() -> None:
    _, kept = run([1.0] * 100_000)  # more than a day
    assert len(kept) < 1600
    assert [point.step for point in kept] == sorted(point.step for point in kept)


def test_repeated_and_late_reports_change_nothing() -> None:
    clock, _ = advance(None, 10, 100.0)
    clock, _ = advance(clock, 20, 150.0)
    assert advance(clock, 20, 170.0) == (clock, ())
    assert advance(clock, 15, 170.0) == (clock, ())
    later, points = advance(clock, 30, 120.0)  # the other machine's clock went back
    assert later.newest == Point(30, 150.0)
    assert points == ()


def clock_at(kept: float, newest: float) -> Clock:
    """Of a run that began at 0."""
    return Clock(0.0, Point(1, kept), Point(2 if newest > kept else 1, newest))


def test_a_point_is_kept_where_the_last_one_is_as_old_as_a_second_or_half_a_percent() -> None:
    for kept, at, is_kept in (
        (10.0, 10.0 + MIN_SECONDS, True),
        (10.0, 10.9, False),
        (398.0, 400.0, True),
        (398.5, 400.0, False),
    ):
        clock, points = advance(clock_at(kept, kept), 3, at)
        assert points == ((Point(3, at),) if is_kept else ())
        assert clock == Clock(0.0, Point(3, at) if is_kept else Point(1, kept), Point(3, at))


def test_both_ends_of_a_pause_are_kept() -> None:
    assert advance(clock_at(10.0, 10.5), 3, 20.0)[1] == (Point(2, 10.5), Point(3, 20.0))
    assert advance(clock_at(10.0, 10.0), 3, 20.0)[1] == (Point(3, 20.0),), "it is kept already"
    assert advance(clock_at(10.0, 10.5), 3, 10.5 + MIN_SECONDS)[1] == (Point(3, 11.5),), "no pause"
    assert advance(None, 3, 5.0) == (Clock(5.0, Point(3, 5.0), Point(3, 5.0)), (Point(3, 5.0),))
