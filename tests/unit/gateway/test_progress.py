from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.reports import PodHeartbeat
from services.gateway.core.progress import (
    PROGRESS,
    JobProgress,
    eta_seconds,
    merge,
    of_heartbeat,
    steps_per_second,
)

START = datetime(2026, 11, 21, tzinfo=UTC)


JOB = job_id_for("default", "job")


def beat(
    step: int | None,
    seconds: float = 0.0,
    fence: int = 1,
    phase: str = "training",
    dropped: int = 0,
) -> Event[PodHeartbeat]:
    heartbeat = PodHeartbeat(
        tenant_id="default", job_id=JOB, run_id=run_id_for(JOB, fence), attempt=fence, fence=fence,
        pod_id=pod_id_for(JOB, fence, 0), phase=phase, step=step, max_steps=400,  # type: ignore[arg-type]
        num_dropped_samples=dropped, sent_at=START + timedelta(seconds=seconds),
    )  # fmt: skip
    return Event("beat", "/pod", START, "default", heartbeat)


def fold(beats: list[Event[PodHeartbeat]]) -> JobProgress | None:
    progress = None
    for event in beats:
        progress = PROGRESS.apply(progress, event)
    return progress


BEATS = st.builds(
    beat,
    step=st.none() | st.integers(0, 50),
    seconds=st.integers(0, 20).map(float),
    fence=st.integers(1, 3),
    phase=st.sampled_from(["starting", "training", "ending"]),
)


@given(st.lists(BEATS, min_size=1), st.randoms())
def test_the_fold_is_the_same_in_any_order_and_with_doubles(
    beats: list[Event[PodHeartbeat]], random
) -> None:
    shuffled = [*beats, *random.choices(beats, k=len(beats))]
    random.shuffle(shuffled)
    assert fold(shuffled) == fold(beats)


@given(st.lists(BEATS, min_size=1), st.integers(0, 20))
def test_batches_fold_as_one(beats: list[Event[PodHeartbeat]], cut: int) -> None:
    cut = min(cut, len(beats))
    first, second = fold(beats[:cut]), fold(beats[cut:])
    if first and second:
        assert merge(first, second) == fold(beats)


def test_an_older_run_says_nothing_any_more() -> None:
    folded = fold([beat(10, 5, fence=2), beat(300, 9, fence=1)])
    assert (folded.attempt, folded.step) == (2, 10)


def test_the_furthest_step_counts_and_the_newest_phase() -> None:
    folded = fold([beat(10, 1), beat(12, 2), beat(None, 3, phase="ending")])
    assert (folded.step, folded.phase) == (12, "ending")


def test_the_name_that_the_program_gives_a_phase_is_shown_until_the_pod_stops() -> None:
    def doing(phase: str, at: int) -> Event[PodHeartbeat]:
        event = beat(12, at, phase=phase)
        return replace(event, payload=event.payload.model_copy(update={"doing": "evaluation"}))

    assert fold([beat(12, 1), doing("training", 2)]).phase == "evaluation"
    assert fold([doing("training", 2), doing("stopping", 3)]).phase == "stopping"


def test_pace_and_what_is_left() -> None:
    folded = fold([beat(100, 0), beat(200, 10)])
    pace = steps_per_second(folded.first_step, folded.first_step_at, folded.step, folded.step_at)
    assert pace == 10
    assert eta_seconds(folded.step, 400, pace) == 20


def test_no_pace_without_movement() -> None:
    folded = fold([beat(100, 0)])
    assert (
        steps_per_second(folded.first_step, folded.first_step_at, folded.step, folded.step_at)
        is None
    )
    assert eta_seconds(100, 400, None) is None
    assert eta_seconds(500, 400, 2.0) == 0


def test_dropped_samples_are_the_most_that_was_reported() -> None:
    folded = fold([beat(1, 1, dropped=7), beat(2, 2, dropped=3)])
    assert folded is not None
    assert folded.num_dropped_samples == 7


def test_the_pace_is_that_since_the_first_step_and_there_is_none_without_time_or_steps() -> None:
    later = START + timedelta(seconds=10)
    assert steps_per_second(0, START, 5, later) == 0.5
    assert steps_per_second(5, START, 6, later) == 0.1
    assert steps_per_second(0, START, 1, START + timedelta(seconds=1)) == 1
    for first, first_at, step, at in (
        (5, START, 5, later),
        (6, START, 5, later),
        (0, START, 5, START),
        (0, later, 5, START),
        (None, START, 5, later),
        (0, None, 5, later),
        (0, START, None, later),
        (0, START, 5, None),
    ):
        assert steps_per_second(first, first_at, step, at) is None


def test_what_is_left_needs_a_step_an_end_and_a_pace() -> None:
    assert eta_seconds(0, 10, 2.0) == 5
    assert eta_seconds(10, 10, 2.0) == 0
    for step, max_steps, pace in ((None, 10, 2.0), (0, None, 2.0), (0, 10, 0.0), (0, 10, None)):
        assert eta_seconds(step, max_steps, pace) is None


def test_first_and_furthest_steps_have_their_own_times() -> None:
    folded = fold([beat(None, 0), beat(7, 3), beat(5, 1), beat(7, 2), beat(6, 9)])
    assert folded is not None
    assert (folded.first_step, folded.first_step_at) == (5, START + timedelta(seconds=1))
    assert (folded.step, folded.step_at) == (7, START + timedelta(seconds=2))
    assert folded.heard_at == START + timedelta(seconds=9)
    silent = fold([beat(None, 0), beat(None, 1)])
    assert silent is not None
    assert (silent.step, silent.first_step, silent.step_at) == (None, None, None)


@pytest.mark.parametrize(("claimed", "kept"), [(-5, 0), (0, 0), (7, 7), (2**63, 2**63 - 1)])
def test_a_claim_of_a_pod_fits_into_its_column(claimed: int, kept: int) -> None:
    event = beat(1)
    changes = {"epoch": claimed, "num_dropped_samples": claimed, "num_dropped_log_bytes": claimed}
    progress = of_heartbeat(replace(event, payload=event.payload.model_copy(update=changes)))
    assert progress.epoch == kept
    assert progress.num_dropped_samples == progress.num_dropped_log_bytes == min(claimed, kept)
    assert of_heartbeat(event).epoch is None


def test_the_largest_epoch_counts() -> None:
    event = beat(1)
    first = of_heartbeat(event)
    for one, other, largest in (
        (None, 3, 3),
        (3, None, 3),
        (2, 3, 3),
        (3, 2, 3),
        (None, None, None),
    ):
        merged = merge(replace(first, epoch=one), replace(first, epoch=other))
        assert merged.epoch == largest
