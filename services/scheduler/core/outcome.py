"""The one outcome of a run whose pods are all finished.

In: the run's view, every pod ENDED or LOST. Out: the run's final state and the pod that explains
it. If all pods succeeded the run succeeded, even when a stop came too late. Otherwise a cancel or
an early stop of the job is the cause, then a pod that the platform disrupted, because the others
may have failed for that, then the first pod that failed or was lost; else the run stopped at a step
boundary.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from drivetrain_schemas.pods import Failure
from drivetrain_schemas.runs import RunState
from services.scheduler.core.pods import EndKind, PodView, RunView
from services.scheduler.core.wishes import Wish

MAX_DETAIL = 1000
_ENDED = {
    RunState.FAILED: "failed",
    RunState.LOST: "was lost",
    RunState.INTERRUPTED: "was interrupted",
}
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`cause`: the pod that explains it; `is_asked`: the stop was requested; `is_disrupted`: what
    runs the pods ended one of them, or never made it."""

    state: RunState
    cause: PodView | None = None
    is_asked: bool = False
    is_disrupted: bool = False

    @property
    def is_refused(self) -> bool:
        """A pod could not be created: whatever the others did meanwhile, nobody is charged."""
        reason = None if self.cause is None else self.cause.reason
        return reason is not None and reason.kind is EndKind.REFUSED

    @property
    def failure(self) -> Failure | None:
        return None if self.cause is None or self.cause.exit is None else self.cause.exit.failure


def conclude(run: RunView) -> Outcome:
    assert all(pod.is_finished for pod in run.pods), f"{run.run_id} still has pods"
    exits = [pod.exit for pod in run.pods]
    if all(end is not None and end.outcome == "succeeded" for end in exits):
        return Outcome(RunState.SUCCEEDED)
    if run.wish is Wish.CANCEL:
        return Outcome(RunState.CANCELLED)
    if run.wish is Wish.STOP:
        return Outcome(RunState.STOPPED)
    disrupted = [pod for pod in run.pods if _is_disrupted(pod)]
    if disrupted:
        return Outcome(RunState.INTERRUPTED, min(disrupted, key=_first), is_disrupted=True)
    # Only what the scheduler recorded counts: a pod's own programs can write its files.
    is_asked = run.stop_reason not in (None, "gang")
    first_end = min((_recorded(pod) for pod in run.pods if _has_run_in_vain(pod)), default=None)
    broken = [pod for pod in run.pods if _is_broken(pod, is_asked, first_end)]
    if not broken:
        return Outcome(RunState.INTERRUPTED, is_asked=is_asked)
    cause = min(broken, key=_first)
    is_lost = cause.exit is None and cause.reason is None
    return Outcome(RunState.LOST if is_lost else RunState.FAILED, cause)


def explain(outcome: Outcome) -> str:
    """One sentence on why the run did not succeed."""
    cause = outcome.cause
    if cause is None:
        return ""
    if cause.reason is not None:
        return cause.reason.detail[:MAX_DETAIL]
    if cause.exit is None:
        was = "ended without saying how" if cause.was_alive else "never started"
        return f"pod {cause.index} {was}; what was left of it was killed"
    end = cause.exit
    if end.detail:
        return end.detail[:MAX_DETAIL]
    how = f"by signal {end.signal}" if end.signal else f"with code {end.exit_code}"
    return f"rank {end.rank} ended {how}" if end.rank is not None else f"a rank ended {how}"


def what_happened(outcome: Outcome, attempt: int) -> str:
    """What became of the run, for its job that waits for the next one."""
    why = explain(outcome)
    verb = _ENDED[outcome.state] if not outcome.is_refused else "could not be started"
    return f"attempt {attempt} {verb}" + (f": {why}" if why else "")


def _is_disrupted(pod: PodView) -> bool:
    is_its_own_end = pod.exit is not None and pod.exit.outcome != "interrupted"
    of_cluster = (EndKind.DISRUPTED, EndKind.REFUSED)
    is_disruption = pod.reason is not None and pod.reason.kind in of_cluster
    return is_disruption and not is_its_own_end


def _is_broken(pod: PodView, is_asked: bool, first_end: datetime | None) -> bool:
    """`first_end`: when the first pod of the gang ended that ran without success."""
    if pod.exit is not None:
        return pod.exit.outcome == "failed"
    if pod.was_alive or pod.reason is not None:
        return True
    # One that was no longer to start, because of a stop or of another pod's end, is not lost.
    return not is_asked and (first_end is None or first_end > _recorded(pod))


def _has_run_in_vain(pod: PodView) -> bool:
    """It ran and ended without success."""
    has_run = pod.was_alive or pod.exit is not None
    return has_run and (pod.exit is None or pod.exit.outcome != "succeeded")


def _recorded(pod: PodView) -> datetime:
    """When its end was."""
    return pod.finished_at or _LATEST


def _first(pod: PodView) -> tuple[datetime, datetime, int]:
    """The time it was recorded; within one round the shims' times; then the index."""
    claimed = pod.exit.ended_at if pod.exit else _LATEST
    return (_recorded(pod), claimed, pod.index)
