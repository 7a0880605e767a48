"""Whether a live run fails to save checkpoints, and which failure is reported.

A failure that a pod reports names its cause. Without a report, a run is overdue when its job
requests a checkpoint at an interval and none has arrived for much longer.
"""

from drivetrain_schemas.checkpoints import SaveFailure

OVERDUE_FACTOR = 2.0
OVERDUE_GRACE_SECONDS = 300.0


def overdue_after(every_seconds: float) -> float:
    """Seconds without a new checkpoint after which one is overdue."""
    return OVERDUE_FACTOR * every_seconds + OVERDUE_GRACE_SECONDS


def replaces(
    known: SaveFailure, known_step: int | None, reason: SaveFailure, step: int | None
) -> bool:
    """Whether a new failure is more specific than the known one, so that it is reported too.

    Rank 0 reports that another rank's part is missing; that rank reports the reason.
    """
    if reason is known or reason is SaveFailure.OVERDUE:
        return False
    return reason is not SaveFailure.RANK_MISSING or known_step != step
