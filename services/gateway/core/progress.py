"""The progress of a job, folded from its heartbeats, and its estimated end.

The fold is the same in any order and with any doubling: steps and times only take their smallest
and largest, within the highest fence. Times are the pod's own claims and only make an estimate.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.reports import PodHeartbeat
from services.gateway.core.noun import Noun

# What a 64-bit column holds; a pod may claim any number.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The newest phase (the program's own name, where it gives one), the furthest step, and the
    first step that was reported."""

    job_id: str
    run_id: str
    attempt: int
    fence: int
    phase: str
    step: int | None
    max_steps: int | None
    epoch: int | None
    num_dropped_samples: int
    num_dropped_log_bytes: int
    first_step: int | None
    first_step_at: datetime | None
    step_at: datetime | None
    heard_at: datetime


def of_heartbeat(event: Event[PodHeartbeat]) -> JobProgress:
    beat = event.payload
    at = None if beat.step is None else beat.sent_at
    return JobProgress(
        job_id=beat.job_id,
        run_id=beat.run_id,
        attempt=beat.attempt,
        fence=beat.fence,
        phase=(beat.doing or beat.phase) if beat.phase == "training" else beat.phase,
        step=beat.step,
        max_steps=beat.max_steps,
        epoch=None if beat.epoch is None else max(0, min(beat.epoch, _MOST)),
        num_dropped_samples=min(beat.num_dropped_samples, _MOST),
        num_dropped_log_bytes=min(beat.num_dropped_log_bytes, _MOST),
        first_step=beat.step,
        first_step_at=at,
        step_at=at,
        heard_at=beat.sent_at,
    )


def merge(one: JobProgress, other: JobProgress) -> JobProgress:
    """Both views of one job combined; one with a lower fence is ignored."""
    if one.fence != other.fence:
        return one if one.fence > other.fence else other
    early, late = sorted((one, other), key=_recency)
    first = min(filter(_has_step, (one, other)), key=_first, default=one)
    furthest = min(filter(_has_step, (one, other)), key=_furthest, default=one)
    return JobProgress(
        job_id=late.job_id,
        run_id=late.run_id,
        attempt=late.attempt,
        fence=late.fence,
        phase=late.phase,
        step=furthest.step,
        max_steps=_largest(one.max_steps, other.max_steps),
        epoch=_largest(one.epoch, other.epoch),
        num_dropped_samples=max(early.num_dropped_samples, late.num_dropped_samples),
        num_dropped_log_bytes=max(early.num_dropped_log_bytes, late.num_dropped_log_bytes),
        first_step=first.first_step,
        first_step_at=first.first_step_at,
        step_at=furthest.step_at,
        heard_at=late.heard_at,
    )


def steps_per_second(
    first_step: int | None,
    first_step_at: datetime | None,
    step: int | None,
    step_at: datetime | None,
) -> float | None:
    """The pace since the first reported step; None until there is one."""
    if first_step is None or step is None or first_step_at is None or step_at is None:
        return None
    seconds = (step_at - first_step_at).total_seconds()
    return (step - first_step) / seconds if seconds > 0 and step > first_step else None


def eta_seconds(step: int | None, max_steps: int | None, pace: float | None) -> float | None:
    """The remaining time at this pace."""
    if step is None or max_steps is None or not pace:
        return None
    return max(0, max_steps - step) / pace


def _reported(progress: JobProgress, event: Event[PodHeartbeat]) -> JobProgress:
    return merge(progress, of_heartbeat(event))


def _recency(progress: JobProgress) -> tuple[Any, ...]:
    return progress.heard_at, progress.phase, progress.attempt, progress.run_id


def _has_step(progress: JobProgress) -> bool:
    return progress.step is not None


def _first(progress: JobProgress) -> tuple[datetime, int]:
    assert progress.first_step_at is not None
    assert progress.first_step is not None
    return progress.first_step_at, progress.first_step


def _furthest(progress: JobProgress) -> tuple[int, datetime]:
    assert progress.step is not None
    assert progress.step_at is not None
    return -progress.step, progress.step_at


def _largest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


PROGRESS = Noun(
    table="job_progress",
    view=JobProgress,
    key=("job_id",),
    new=of_heartbeat,
    rules={PodHeartbeat: _reported},
)
