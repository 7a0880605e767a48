"""The one outcome of a run whose pods are all finished.

In: the run's view, every pod ENDED or LOST. Out: the run's final state and the pod that explains
it. All pods succeeded is success, even when a stop came too late; a cancel explains everything
else; then the first pod that failed or was lost; what remains stopped at a step boundary.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from drivetrain_schemas.runs import RunState
from services.scheduler.core.pods import PodView, RunView

_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`cause` is the pod that failed or was lost first; `is_asked`: the platform said stop."""

    state: RunState
    cause: PodView | None = None
    is_asked: bool = False


def conclude(run: RunView) -> Outcome:
    assert all(pod.is_finished for pod in run.pods), f"{run.run_id} still has pods"
    exits = [pod.exit for pod in run.pods]
    if all(end is not None and end.outcome == "succeeded" for end in exits):
        return Outcome(RunState.SUCCEEDED)
    if run.is_cancelled:
        return Outcome(RunState.CANCELLED)
    notices = (run.stop_reason, *(pod.notice for pod in run.pods))
    is_asked = any(notice not in (None, "gang") for notice in notices)
    broken = [pod for pod in run.pods if pod.exit is None or pod.exit.outcome == "failed"]
    if not broken:
        return Outcome(RunState.INTERRUPTED, is_asked=is_asked)
    cause = min(broken, key=_first)
    return Outcome(RunState.LOST if cause.exit is None else RunState.FAILED, cause)


def _first(pod: PodView) -> tuple[datetime, datetime, int]:
    """When it was recorded; within one round what the shims say; the index between equals."""
    claimed = pod.exit.ended_at if pod.exit else _LATEST
    return (pod.finished_at or _LATEST, claimed, pod.index)
