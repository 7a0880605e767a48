from datetime import UTC, datetime, timedelta

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
