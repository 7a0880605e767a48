"""Whether a live run fails to save checkpoints, and which failure is announced.

A failure that a pod reports names its cause. Without a report (a save may hang), a run is overdue
when its job requests checkpoints at an interval and none has arrived for much longer.
"""

from collections.abc import Collection
from dataclasses import dataclass

from drivetrain_schemas.checkpoints import SaveFailure

OVERDUE_FACTOR = 2.0
OVERDUE_GRACE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What a run has done since its last new checkpoint. `steps`: as far as its heartbeats say."""

    seconds: float
    steps: int = 0


def overdue(unsaved: Unsaved, every_seconds: float | None, every_steps: int | None) -> str | None:
    """What is overdue, for people; None while nothing is."""
    minutes = f"no checkpoint for {unsaved.seconds / 60:.0f} min"
    if every_seconds is not None and unsaved.seconds > overdue_after(every_seconds):
        return f"{minutes}; the job asks for one every {every_seconds / 60:g} min"
    is_long = unsaved.seconds > OVERDUE_GRACE_SECONDS
    if every_steps is not None and is_long and unsaved.steps >= OVERDUE_FACTOR * every_steps:
        asked = f"the job asks for one every {every_steps} steps"
        return f"{minutes} and {unsaved.steps} steps; {asked}"
    return None


def overdue_after(every_seconds: float) -> float:
    """Seconds without a new checkpoint after which one is overdue."""
    return OVERDUE_FACTOR * every_seconds + OVERDUE_GRACE_SECONDS


def is_news(announced: Collection[SaveFailure], reason: SaveFailure) -> bool:
    """Whether a failure is announced, after those announced since the run last saved.

    Each cause once, so a run that reports causes in turn causes no stream of events. Two say less
    than any other: that a checkpoint is overdue, and that a rank's part is missing, which rank 0
    reports while that rank reports the reason.
    """
    if reason is SaveFailure.OVERDUE:
        return not announced
    if reason is SaveFailure.RANK_MISSING:
        return set(announced) <= {SaveFailure.OVERDUE}
    return reason not in announced
