"""When a run is stalled: its step does not change although its pods send heartbeats.

Each heartbeat is folded into the run's pace by the time it was received on our clock. Only time
with heartbeats counts as time without a step: a gap between two heartbeats (a broker that was down,
this service restarting, a pod cut off) adds at most `MAX_GAP_SECONDS`, so missing heartbeats, about
which the scheduler decides, never raise this alert. Nothing counts before the first reported step,
because a program need not report steps at all.

In a phase that the program names no step is expected, and its output counts as progress: silence is
counted, for ten minutes or as long as the job says.
"""

import math
from dataclasses import dataclass, replace
from statistics import median

MAX_GAP_SECONDS = 5.0
MIN_STALL_SECONDS = 60.0
STALL_STEPS = 10
MIN_PHASE_STALL_SECONDS = 600.0
# Below this number the median means little: the only step time may be that of a stall.
MIN_STEP_TIMES = 3
MAX_STEP_TIMES = 15
# In these phases a pod is not expected to make steps.
ENDING_PHASES = frozenset({"stopping", "ending"})


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The progress in one heartbeat; `received_at` in seconds of our clock. `is_named`: the program
    says what it does; `quiet_seconds`: since it did, or since output while it does."""

    received_at: float
    phase: str
    step: int | None
    is_named: bool = False
    quiet_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Pace:
    """The last step of a run, and for how long heartbeats have come without a new one. `named_at`:
    when a pod of the gang last said what the program does."""

    heard_at: float
    step: int | None = None
    moved_at: float | None = None
    still_seconds: float = 0.0
    step_seconds: tuple[float, ...] = ()
    named_at: float | None = None

    @property
    def is_in_phase(self) -> bool:
        return self.named_at is not None and self.heard_at - self.named_at <= MAX_GAP_SECONDS


def advance(progress: Pace | None, heartbeat: Heartbeat) -> Pace:
    """The pace after this heartbeat; one from another pod of the gang may be a step behind."""
    if progress is None:
        progress = Pace(heard_at=heartbeat.received_at)
    heard_at = max(progress.heard_at, heartbeat.received_at)
    if heartbeat.is_named:
        progress = replace(progress, named_at=heard_at)
    if heartbeat.step is not None and (progress.step is None or heartbeat.step > progress.step):
        return replace(
            progress,
            heard_at=heard_at,
            step=heartbeat.step,
            moved_at=heard_at,
            still_seconds=0.0,
            step_seconds=_with_step_time(progress, heard_at, heartbeat.step),
        )
    if heartbeat.phase in ENDING_PHASES or progress.step is None:
        return replace(progress, heard_at=heard_at)
    gap = min(heard_at - progress.heard_at, MAX_GAP_SECONDS)
    still_seconds = min(progress.still_seconds + gap, heartbeat.quiet_seconds)
    return replace(progress, heard_at=heard_at, still_seconds=still_seconds)


def stall_limit(progress: Pace, asked_seconds: float | None = None) -> float:
    """The limit in seconds without a step for this run: the one that its job names, if it does."""
    if asked_seconds is not None:
        return asked_seconds
    least = MIN_PHASE_STALL_SECONDS if progress.is_in_phase else MIN_STALL_SECONDS
    if len(progress.step_seconds) < MIN_STEP_TIMES:
        return least
    return max(least, STALL_STEPS * median(progress.step_seconds))


def is_stalled(progress: Pace, asked_seconds: float | None = None) -> bool:
    return progress.still_seconds > stall_limit(progress, asked_seconds)


def _with_step_time(progress: Pace, moved_at: float, step: int) -> tuple[float, ...]:
    if progress.step is None or progress.moved_at is None:
        return ()
    seconds = (moved_at - progress.moved_at) / (step - progress.step)
    return (*progress.step_seconds, seconds)[-MAX_STEP_TIMES:]
