import pytest

from services.metrics.core.alerts import Heartbeat, Progress, advance, is_stalled, stall_limit


def beats(
    progress: Progress | None, start: float, steps: list[int | None], phase: str = "training"
) -> Progress:
    """Heartbeats a second apart, the first a second after `start`."""
    for second, step in enumerate(steps, start=1):
        progress = advance(progress, Heartbeat(start + second, phase, step))
    assert progress is not None
    return progress


def test_a_run_that_moves_is_not_stalled() -> None:
    progress = beats(None, 0.0, list(range(300)))
    assert not is_stalled(progress)
    assert progress.step == 299


def test_a_run_that_is_heard_for_over_a_minute_without_a_step_is_stalled() -> None:
    progress = beats(None, 0.0, [1, 2, 3])
    assert not is_stalled(beats(progress, 3.0, [3] * 60))
    assert is_stalled(beats(progress, 3.0, [3] * 61))


def test_one_step_ends_the_stall() -> None:
    progress = beats(None, 0.0, [3] * 90)
    assert is_stalled(progress)
    assert not is_stalled(beats(progress, 90.0, [4]))


def test_slow_steps_are_given_ten_of_their_own_time() -> None:
    progress: Progress | None = None
    for step in range(6):
        progress = beats(progress, step * 20.0, [step] * 20)
    assert progress is not None
    assert stall_limit(progress) == pytest.approx(200.0)
    progress = beats(progress, 120.0, [5] * 150)
    assert not is_stalled(progress)
    assert is_stalled(beats(progress, 270.0, [5] * 50))


def test_silence_is_not_a_stall() -> None:
    """The broker was down for ten minutes: the run is heard again at the step it had."""
    progress = beats(None, 0.0, [1, 2, 3])
    assert not is_stalled(advance(progress, Heartbeat(603.0, "training", 3)))


def test_a_program_that_reports_no_steps_never_stalls() -> None:
    assert not is_stalled(beats(None, 0.0, [None] * 500))


def test_a_stopping_run_makes_no_steps_and_is_not_stalled() -> None:
    progress = beats(None, 0.0, [1, 2, 3])
    assert not is_stalled(beats(progress, 3.0, [3] * 200, phase="stopping"))


def test_a_pod_that_lags_behind_the_others_does_not_take_the_run_back() -> None:
    progress = advance(None, Heartbeat(1.0, "training", 10))
    progress = advance(progress, Heartbeat(1.5, "training", 8))
    assert progress.step == 10
