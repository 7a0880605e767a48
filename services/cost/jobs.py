"""What is kept of jobs: the study and project that their cost counts for, and when they succeeded,
for estimates from history."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobCancelled, JobFailed, JobQueued, JobStopped, JobSucceeded
from drivetrain_schemas.trials import TrialProposed
from services.cost import store_accrual, store_spend
from services.cost.store_spend import JobFacts
from services.runtime.transaction import Tx

# A trial is proposed before its job is queued: either may be read first.
_ENDS = (JobSucceeded, JobFailed, JobCancelled, JobStopped)
JOB_KINDS = (JobQueued, TrialProposed, *_ENDS)


async def put_jobs(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """Keep the facts of jobs in these events."""
    jobs: dict[str, dict[str, JobFacts]] = defaultdict(dict)
    for event in events:
        facts = _facts(event.payload)
        if facts is not None:
            of_tenant = jobs[event.tenant_id]
            of_tenant[facts.job_id] = facts.after(of_tenant.get(facts.job_id))
    for tenant_id, found in sorted(jobs.items()):
        await store_spend.put_jobs(tx.connection, tenant_id, list(found.values()))


async def end_jobs(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """What the jobs that ended by these events held is over, even if no release was read."""
    ends = [event.payload for event in events if isinstance(event.payload, _ENDS)]
    if ends:
        ended_at = {end.job_id: end.finished_at for end in ends}
        await store_accrual.end_of_jobs(tx.connection, ended_at)


def _facts(payload: object) -> JobFacts | None:
    match payload:
        case JobQueued(job_id=job_id, spec=spec, trial=trial):
            study_id = None if trial is None else trial.study_id
            digest = store_spend.digest_of(spec.command)
            return JobFacts(job_id, study_id, spec.project, spec.name, digest)
        case JobSucceeded() as ended:
            return JobFacts(ended.job_id, succeeded_at=ended.finished_at)
        case TrialProposed(is_external=False) as trial:
            return JobFacts(trial.job_id, study_id=trial.study_id)
    return None
