import pytest

from services.metrics.core.alerts import Heartbeat, Pace, advance, is_stalled, stall_limit


def beats(
    pace: Pace | None, start: float, steps: list[int | None], phase: str = "training"
) -> Pace:
    """Heartbeats a second apart, the first a second after `start`."""
    for second, step in enumerate(steps, start=1):
        pace = advance(pace, Heartbeat(start + second, phase, step))
    assert pace is not None
    return pace


def test_a_run_that_moves_is_not_stalled() -> None:
    pace = beats(None, 0.0, list(range(300)))
    assert not is_stalled(pace)
    assert pace.step == 299


def test_a_run_with_heartbeats_for_over_a_minute_without_a_step_is_stalled() -> None:
    pace = beats(None, 0.0, [1, 2, 3])
    assert not is_stalled(beats(pace, 3.0, [3] * 60))
    assert is_stalled(beats(pace, 3.0, [3] * 61))


def test_one_step_ends_the_stall() -> None:
    pace = beats(None, 0.0, [3] * 90)
    assert is_stalled(pace)
    assert not is_stalled(beats(pace, 90.0, [4]))


def test_slow_steps_are_given_ten_of_their_own_time() -> None:
    pace: Pace | None = None
    for step in range(6):
        pace = beats(pace, step * 20.0, [step] * 20)
    assert pace is not None
    assert stall_limit(pace) == pytest.approx(200.0)
    pace = beats(pace, 120.0, [5] * 150)
    assert not is_stalled(pace)
    assert is_stalled(beats(pace, 270.0, [5] * 50))


def test_silence_is_not_a_stall() -> None:
    """The broker was down for ten minutes: heartbeats come again with the same step."""
    pace = beats(None, 0.0, [1, 2, 3])
    assert not is_stalled(advance(pace, Heartbeat(603.0, "training", 3)))


def test_a_program_that_reports_no_steps_never_stalls() -> None:
    assert not is_stalled(beats(None, 0.0, [None] * 500))


def test_a_stopping_run_makes_no_steps_and_is_not_stalled() -> None:
    pace = beats(None, 0.0, [1, 2, 3])
    assert not is_stalled(beats(pace, 3.0, [3] * 200, phase="stopping"))


def test_a_pod_that_lags_behind_the_others_does_not_take_the_run_back() -> None:
    pace = advance(None, Heartbeat(1.0, "training", 10))
    pace = advance(pace, Heartbeat(1.5, "training", 8))
    assert pace.step == 10
