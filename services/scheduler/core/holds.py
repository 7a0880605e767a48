"""What budgets hold back: jobs of their tenant, project, study or own that get no run for now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.scheduler.core.model import QueuedJob

# Tenant, study, job, project.
Scope = tuple[str, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Hold:
    """A budget that is used up: of the whole tenant, or of one project, study or job of it."""

    tenant_id: str
    budget: str
    detail: str
    study_id: str | None = None
    job_id: str | None = None
    project: str | None = None

    @property
    def scope(self) -> Scope:
        return (self.tenant_id, self.study_id, self.job_id, self.project)


def by_scope(holds: Iterable[Hold]) -> Mapping[Scope, tuple[int, Hold]]:
    """The first hold of each scope, with its position."""
    found: dict[Scope, tuple[int, Hold]] = {}
    for position, hold in enumerate(holds):
        found.setdefault(hold.scope, (position, hold))
    return found


def split(
    line: Sequence[QueuedJob], holds: Mapping[Scope, tuple[int, Hold]]
) -> tuple[tuple[QueuedJob, ...], dict[Hold, tuple[QueuedJob, ...]]]:
    """The jobs of a line that may start, and the others by the first hold that covers them."""
    free: list[QueuedJob] = []
    held: dict[Hold, list[QueuedJob]] = {}
    for job in line:
        covering = [holds[scope] for scope in _scopes(job) if scope in holds]
        _, hold = min(covering, default=(0, None))
        if hold is None:
            free.append(job)
        else:
            held.setdefault(hold, []).append(job)
    return tuple(free), {hold: tuple(jobs) for hold, jobs in held.items()}


def _scopes(job: QueuedJob) -> tuple[Scope, ...]:
    """Those that the job is part of."""
    return (
        (job.tenant_id, None, None, None),
        (job.tenant_id, job.study_id, None, None),
        (job.tenant_id, None, job.job_id, None),
        (job.tenant_id, None, None, job.project),
    )
