"""How far a run has come, folded from its heartbeats, and when it will be done.

The fold is the same in any order and with any doubling: steps and times only take their smallest
and largest, within the highest fence. Times are the pod's own claims and only make an estimate.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Beat:
    """What one heartbeat says."""

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
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Progress:
    """A run so far: its newest word, its furthest step, and the first step that was reported."""

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


def of_beat(beat: Beat) -> Progress:
    at = None if beat.step is None else beat.sent_at
    return Progress(
        job_id=beat.job_id,
        run_id=beat.run_id,
        attempt=beat.attempt,
        fence=beat.fence,
        phase=beat.phase,
        step=beat.step,
        max_steps=beat.max_steps,
        epoch=beat.epoch,
        num_dropped_samples=beat.num_dropped_samples,
        num_dropped_log_bytes=beat.num_dropped_log_bytes,
        first_step=beat.step,
        first_step_at=at,
        step_at=at,
        heard_at=beat.sent_at,
    )


def merge(one: Progress, other: Progress) -> Progress:
    """Both words about one job; a word of a lower fence counts for nothing."""
    if one.fence != other.fence:
        return max(one, other, key=lambda word: word.fence)
    early, late = sorted((one, other), key=lambda word: (word.heard_at, word.phase))
    first = min(filter(_has_step, (one, other)), key=_first, default=one)
    furthest = min(filter(_has_step, (one, other)), key=_furthest, default=one)
    return Progress(
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


def fold(beats: Iterable[Beat]) -> dict[str, Progress]:
    """One word per job."""
    folded: dict[str, Progress] = {}
    for beat in beats:
        word = of_beat(beat)
        before = folded.get(beat.job_id)
        folded[beat.job_id] = word if before is None else merge(before, word)
    return folded


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
    """How long the rest takes at this pace."""
    if step is None or max_steps is None or not pace:
        return None
    return max(0, max_steps - step) / pace


def _has_step(word: Progress) -> bool:
    return word.step is not None


def _first(word: Progress) -> tuple[datetime, int]:
    assert word.first_step_at is not None
    assert word.first_step is not None
    return word.first_step_at, word.first_step


def _furthest(word: Progress) -> tuple[int, datetime]:
    assert word.step is not None
    assert word.step_at is not None
    return -word.step, word.step_at


def _largest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)
