"""Commands about jobs that exist: cancel, stop, pause and resume.

`apply` decides (`core.wishes`), saves and emits. A running job is asked to stop, and becomes what
is wanted when its run has ended; a job without a run becomes it at once. The caller holds the
writer lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Cause, Event
from drivetrain_schemas.jobs import (
    JobCancel,
    JobCancelling,
    JobPause,
    JobPausing,
    JobResume,
    JobState,
    JobStop,
    JobStopping,
    RejectionReason,
)
from drivetrain_schemas.runs import RunState
from services.runtime.transaction import Tx
from services.scheduler import endings, instruments, store, store_runs, transitions
from services.scheduler.answers import reject
from services.scheduler.core.admission import Refusal
from services.scheduler.core.wishes import Accepted, Refused, Verb, Wish, answer
from services.scheduler.store import JobRow

VERBS: Mapping[type[Payload], Verb] = {
    JobCancel: Verb.CANCEL,
    JobStop: Verb.STOP,
    JobPause: Verb.PAUSE,
    JobResume: Verb.RESUME,
}
_DONE = {
    Verb.CANCEL: "cancelled",
    Verb.STOP: "stopped",
    Verb.PAUSE: "paused",
    Verb.RESUME: "resumed",
}


@dataclass(frozen=True, slots=True)
class JobCommand:
    """`cause` is the event of the command."""

    verb: Verb
    cause: Cause
    job_id: str
    tenant_id: str
    reason: str = ""
    saves_last: bool = True


def command_of(event: Event[Any]) -> JobCommand:
    payload = event.payload
    return JobCommand(
        verb=VERBS[type(payload)],
        cause=Cause(event.event_id, event.correlation_id, event.traceparent),
        job_id=payload.job_id,
        tenant_id=event.tenant_id,
        reason="" if isinstance(payload, JobResume) else payload.reason,
        saves_last=not isinstance(payload, JobStop) or payload.checkpoint,
    )


async def apply(tx: Tx, command: JobCommand, job: JobRow | None) -> None:
    """Do what the command asks for, or refuse it; nothing where it is so already."""
    if job is None or job.tenant_id != command.tenant_id:
        await refuse_unknown(tx, command)
        return
    decided = answer(command.verb, job.state, job.wish)
    if isinstance(decided, Refused):
        refusal = Refusal(RejectionReason.ALREADY_FINISHED, decided.why, "job_id")
        await reject(tx, command.cause, command.tenant_id, job.job_id, refusal)
    elif decided is not None:
        await _accept(tx, command, decided)


async def refuse_unknown(tx: Tx, command: JobCommand) -> None:
    detail = f"there is no job {command.job_id}"
    refusal = Refusal(RejectionReason.NO_SUCH_JOB, detail, "job_id")
    await reject(tx, command.cause, command.tenant_id, command.job_id, refusal)


async def _accept(tx: Tx, command: JobCommand, accepted: Accepted) -> None:
    connection, job_id = tx.connection, command.job_id
    if accepted.wish is Wish.CANCEL:
        await store.set_cancelled(connection, job_id, command.reason)
    else:
        await store.set_requested(
            connection, job_id, accepted.wish, command.reason, command.saves_last
        )
    if (announced := _announced(command)) is not None:
        await tx.emit(announced, tenant_id=command.tenant_id, cause=command.cause)
    job = await store.job(connection, job_id)
    assert job is not None
    if accepted.wish is None:
        await transitions.resume(tx, job)
    elif accepted.state is None:
        for run in await store_runs.live_runs_of(connection, [job_id]):
            if run.state is not RunState.STOPPING:
                await transitions.stop(tx, run, str(accepted.wish))
    elif accepted.state is JobState.PAUSED:
        await transitions.pause(tx, job, job.tries)
    else:
        await endings.end_without_run(tx, job, accepted.state)
    tx.after_commit(instruments.REQUESTS.labels(_DONE[command.verb]).inc)


def _announced(command: JobCommand) -> Payload | None:
    """That the command was accepted; a resume takes effect at once and says so itself."""
    match command.verb:
        case Verb.CANCEL:
            return JobCancelling(job_id=command.job_id, reason=command.reason)
        case Verb.STOP:
            return JobStopping(job_id=command.job_id, reason=command.reason)
        case Verb.PAUSE:
            return JobPausing(job_id=command.job_id, reason=command.reason)
        case Verb.RESUME:
            return None
