"""When a run wants a look: its step stands still although its pods are heard.

Each heartbeat is folded into the run's progress by the time it was received on our clock. Only
time in which the run was heard counts as standing still: a gap between two heartbeats (a broker
that was down, this service restarting, a pod cut off) adds at most `MAX_GAP_SECONDS`, so silence,
which is the scheduler's to judge, never raises this alert. Steps before the first reported one do
not count, because a program need not report steps at all.
"""

from dataclasses import dataclass, replace
from statistics import median

MAX_GAP_SECONDS = 5.0
MIN_STALL_SECONDS = 60.0
STALL_STEPS = 10
# Fewer step times say little: the very stall that ended may be the only one.
MIN_STEP_TIMES = 3
MAX_STEP_TIMES = 15
# In these phases a pod is expected to make no steps.
ENDING_PHASES = frozenset({"stopping", "ending"})


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a pod said of its progress; `received_at` in seconds of our clock."""

    received_at: float
    phase: str
    step: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come, and for how long it has been heard without moving."""

    heard_at: float
    step: int | None = None
    moved_at: float | None = None
    still_seconds: float = 0.0
    step_seconds: tuple[float, ...] = ()


def advance(progress: Progress | None, heartbeat: Heartbeat) -> Progress:
    """The progress after this heartbeat; one of another pod of the gang may lag behind."""
    if progress is None:
        progress = Progress(heard_at=heartbeat.received_at)
    heard_at = max(progress.heard_at, heartbeat.received_at)
    if heartbeat.step is not None and (progress.step is None or heartbeat.step > progress.step):
        return Progress(
            heard_at=heard_at,
            step=heartbeat.step,
            moved_at=heard_at,
            still_seconds=0.0,
            step_seconds=_with_step_time(progress, heard_at, heartbeat.step),
        )
    if heartbeat.phase in ENDING_PHASES or progress.step is None:
        return replace(progress, heard_at=heard_at)
    gap = min(heard_at - progress.heard_at, MAX_GAP_SECONDS)
    return replace(progress, heard_at=heard_at, still_seconds=progress.still_seconds + gap)


def stall_limit(progress: Progress) -> float:
    """Seconds without a step that are too many for this run."""
    if len(progress.step_seconds) < MIN_STEP_TIMES:
        return MIN_STALL_SECONDS
    return max(MIN_STALL_SECONDS, STALL_STEPS * median(progress.step_seconds))


def is_stalled(progress: Progress) -> bool:
    return progress.still_seconds > stall_limit(progress)


def _with_step_time(progress: Progress, moved_at: float, step: int) -> tuple[float, ...]:
    if progress.step is None or progress.moved_at is None:
        return ()
    seconds = (moved_at - progress.moved_at) / (step - progress.step)
    return (*progress.step_seconds, seconds)[-MAX_STEP_TIMES:]
