"""When a study ends, and as what. Pure."""

from dataclasses import replace

from services.hpo.core.actions import EndedBy, FailedBy, FailStudy, FinishCancel, FinishStudy
from services.hpo.core.objectives import pareto
from services.hpo.core.status import Status
from services.hpo.core.trials import Trials

# After this many refusals in a row the next trial would be refused too: the spec is the cause.
MAX_REFUSED_IN_ROW = 10
MAX_PARETO = 1000


def failed_by(status: Status) -> FailedBy | None:
    """Why a study fails that may still have running trials."""
    most = status.numbers.limits.failed_trials
    if status.num_refused_in_row >= MAX_REFUSED_IN_ROW:
        return "trials_refused"
    return "failed_trials" if most is not None and status.num_failed_here >= most else None


def counted(status: Status, trials: Trials) -> Status:
    """After one more trial has ended: with a better value, or without one."""
    if (best := status.best) is not None:
        loss, before = trials.loss_of(best.value), status.best_counted
        if before is None or loss < before - status.numbers.limits.min_change:
            return replace(status, best_counted=loss, num_since_best=0)
    return replace(status, num_since_best=status.num_since_best + 1)


def end_of(
    status: Status, trials: Trials, *, may_go_on: bool
) -> FinishStudy | FailStudy | FinishCancel | None:
    """How a study ends none of whose trials is open; None: it goes on."""
    if status.is_finished:
        return None
    if status.is_cancelled:
        return FinishCancel(status.best)
    if status.failing:
        return FailStudy(status.failing)
    if status.ending:
        return _completed(status, trials, status.ending)
    if may_go_on:
        return None
    if status.num_failed and not status.num_completed + status.num_stopped:
        return FailStudy("all_trials_failed")
    return _completed(status, trials, status.without_trials)


def _completed(status: Status, trials: Trials, ended_by: EndedBy) -> FinishStudy:
    front = pareto(trials)[:MAX_PARETO] if len(trials.goals) > 1 else ()
    return FinishStudy(ended_by, status.best, front)
