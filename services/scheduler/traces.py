"""The span of each attempt of a job, where spans are exported: from the grant to the release.

The pods' spans and the events of the run are its children; its ids follow from the run's id
(`trace_context`), so that it can be exported at its end by whichever process sees that.
"""

from dataclasses import replace
from functools import partial

from drivetrain_schemas.envelope import Cause
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.pods import PodTrace
from drivetrain_schemas.runs import RunState
from services.runtime import tracing
from services.runtime.trace_context import of_attempt
from services.runtime.transaction import Tx
from services.scheduler.store import JobRow
from services.scheduler.store_allocations import AllocationRow
from services.scheduler.store_runs import RunRow

_FAILURES = (RunState.FAILED, RunState.LOST)


def cause(job: JobRow, attempt: int | None) -> Cause:
    """What caused an event of the job, or of this attempt of it."""
    if attempt is None or tracing.endpoint() is None:
        return job.cause
    context = of_attempt(run_id_for(job.job_id, attempt), attempt, job.cause.traceparent)
    return replace(job.cause, traceparent=context.traceparent())


def of_pod(job: JobRow, run: RunRow) -> PodTrace | None:
    """Where a pod of the run exports its spans, and their parent."""
    endpoint = tracing.endpoint()
    traceparent = cause(job, run.attempt).traceparent
    if endpoint is None or traceparent is None:
        return None
    return PodTrace(endpoint=endpoint, traceparent=traceparent)


def note_end(
    tx: Tx, job: JobRow, run: RunRow, allocation: AllocationRow, outcome: RunState
) -> None:
    """The attempt has ended: its span is exported once that is committed."""
    if tracing.endpoint() is None:
        return
    assert allocation.released_at is not None
    export = partial(
        tracing.record,
        of_attempt(run.run_id, run.attempt, job.cause.traceparent),
        f"attempt {run.attempt}",
        (allocation.granted_at, allocation.released_at),
        job.cause.traceparent if run.attempt == 1 else None,
        {"job_id": run.job_id, "run_id": run.run_id, "outcome": str(outcome)},
        str(outcome) if outcome in _FAILURES else None,
    )
    tx.after_commit(export)
