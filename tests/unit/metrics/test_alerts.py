import pytest

from services.metrics.core.alerts import (
    MAX_GAP_SECONDS,
    MAX_STEP_TIMES,
    MIN_PHASE_STALL_SECONDS,
    MIN_STALL_SECONDS,
    Heartbeat,
    Pace,
    advance,
    is_stalled,
    stall_limit,
)


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


def phase(pace: Pace, start: float, quiet: list[float]) -> Pace:
    """Heartbeats of a phase that the program names, a second apart, so long after its output."""
    for second, seconds in enumerate(quiet, start=1):
        pace = advance(pace, Heartbeat(start + second, "training", 3, True, seconds))
    return pace


def test_an_evaluation_with_output_is_never_stalled_and_a_silent_one_after_its_time() -> None:
    pace = beats(None, 0.0, [1, 2, 3])
    prints = [second % 5.0 for second in range(5000)]
    assert not is_stalled(phase(pace, 3.0, prints), asked_seconds=60.0)
    silent = [float(second) for second in range(1, 602)]
    assert stall_limit(phase(pace, 3.0, silent[:1])) == MIN_PHASE_STALL_SECONDS
    assert not is_stalled(phase(pace, 3.0, silent[:600]))
    assert is_stalled(phase(pace, 3.0, silent))
    assert not is_stalled(phase(pace, 3.0, silent[:120]), asked_seconds=120.0)
    assert is_stalled(phase(pace, 3.0, silent[:121]), asked_seconds=120.0)


def test_after_a_phase_the_time_without_a_step_begins_again() -> None:
    pace = phase(beats(None, 0.0, [1, 2, 3]), 3.0, [float(second) for second in range(1, 101)])
    for second in range(1, 62):
        pace = advance(pace, Heartbeat(103.0 + second, "training", 3, False, float(second)))
        assert is_stalled(pace) == (second > MIN_STALL_SECONDS)


def test_other_pods_of_the_gang_wait_for_the_evaluation_of_the_first_one() -> None:
    pace = beats(None, 0.0, [1, 2, 3])
    for second in range(1, 300):
        pace = phase(pace, 2.5 + second, [float(second)])
        pace = advance(pace, Heartbeat(3.6 + second, "training", 3))
        assert not is_stalled(pace)


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


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        ((), MIN_STALL_SECONDS),
        ((20.0, 20.0), MIN_STALL_SECONDS),
        ((20.0, 20.0, 20.0), 200.0),
        ((6.0, 6.0, 6.0), MIN_STALL_SECONDS),
        ((7.0, 8.0, 900.0), 80.0),
    ],
)
def test_the_limit_is_ten_usual_steps_once_some_are_known(
    times: tuple[float, ...], limit: float
) -> None:
    still = Pace(0.0, step=1, moved_at=0.0, still_seconds=limit, step_seconds=times)
    assert stall_limit(still) == limit
    assert not is_stalled(still)
    assert is_stalled(advance(still, Heartbeat(0.5, "training", 1)))


def test_a_step_time_is_that_of_one_step_and_the_newest_are_kept() -> None:
    pace = advance(None, Heartbeat(10.0, "training", 4))
    assert (pace.step_seconds, pace.moved_at) == ((), 10.0)
    pace = advance(pace, Heartbeat(16.0, "training", 6))
    assert (pace.step, pace.step_seconds) == (6, (3.0,))
    for step in range(7, 7 + MAX_STEP_TIMES):
        pace = advance(pace, Heartbeat(float(10 + step), "training", step))
    assert pace.step_seconds == (1.0,) * MAX_STEP_TIMES


def test_only_heard_time_without_a_step_counts_and_it_never_goes_back() -> None:
    pace = Pace(10.0, step=1, moved_at=10.0, still_seconds=2.0)
    for at, still in ((10.0, 2.0), (11.5, 3.5), (15.0, 7.0), (16.0, 2.0 + MAX_GAP_SECONDS)):
        assert advance(pace, Heartbeat(at, "training", 1)).still_seconds == still
    late = advance(pace, Heartbeat(9.0, "training", 1))
    assert (late.heard_at, late.still_seconds) == (10.0, 2.0)
    assert advance(pace, Heartbeat(12.0, "training", None)).still_seconds == 4.0
    assert advance(pace, Heartbeat(9.0, "training", 2)).moved_at == 10.0


@pytest.mark.parametrize("phase", ["stopping", "ending"])
def test_time_in_which_no_step_is_expected_does_not_count(phase: str) -> None:
    pace = Pace(10.0, step=1, moved_at=10.0, still_seconds=2.0)
    ending = advance(pace, Heartbeat(12.0, phase, 1))
    assert (ending.heard_at, ending.still_seconds) == (12.0, 2.0)
    assert advance(ending, Heartbeat(13.0, phase, 2)).step == 2
    begun = advance(None, Heartbeat(1.0, "training", None))
    assert advance(begun, Heartbeat(3.0, "training", None)) == Pace(3.0)
