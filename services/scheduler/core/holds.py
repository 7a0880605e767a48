"""What budgets hold back: jobs of their tenant, project, study or own that get no run for now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.scheduler.core.model import QueuedJob


@dataclass(frozen=True, slots=True)
class Hold:
    """A budget that is used up: of the whole tenant, or of one project, study or job of it."""

    tenant_id: str
    budget: str
    detail: str
    study_id: str | None = None
    job_id: str | None = None
    project: str | None = None

    def covers(self, job: QueuedJob) -> bool:
        return (
            job.tenant_id == self.tenant_id
            and self.study_id in (None, job.study_id)
            and self.job_id in (None, job.job_id)
            and self.project in (None, job.project)
        )


def split(
    line: Sequence[QueuedJob], holds: Sequence[Hold]
) -> tuple[tuple[QueuedJob, ...], dict[Hold, tuple[QueuedJob, ...]]]:
    """The jobs of a line that may start, and the others by the first hold that covers them."""
    free: list[QueuedJob] = []
    held: dict[Hold, list[QueuedJob]] = {}
    for job in line:
        hold = _first(holds, job)
        if hold is None:
            free.append(job)
        else:
            held.setdefault(hold, []).append(job)
    return tuple(free), {hold: tuple(jobs) for hold, jobs in held.items()}


def _first(holds: Iterable[Hold], job: QueuedJob) -> Hold | None:
    return next((hold for hold in holds if hold.covers(job)), None)
