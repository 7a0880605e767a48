"""A job as it is shown: its state, why it waits, its newest run and how it ended."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from drivetrain_schemas.annotations import JobAnnotated
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import (
    JobCancelled,
    JobCancelling,
    JobFailed,
    JobPaused,
    JobPausing,
    JobQueued,
    JobRequestRejected,
    JobResumed,
    JobRetrying,
    JobStopped,
    JobStopping,
    JobSubmit,
    JobSucceeded,
    JobWaiting,
    RejectionReason,
)
from drivetrain_schemas.runs import RunStarted, RunStarting, RunWaiting
from services.gateway.core.noun import (
    NEVER,
    Key,
    Noun,
    Rule,
    changed,
    earliest,
    given,
    moves_to,
    newest,
)
from services.gateway.core.requests import subject_of

# Refusals of commands about a job that exists, or that will never exist.
_OF_NO_REQUEST = (RejectionReason.NO_SUCH_JOB, RejectionReason.ALREADY_FINISHED)


@dataclass(frozen=True, slots=True)
class Job:
    """`state` is submitted, then rejected or a state of the scheduler."""

    job_id: str
    tenant_id: str
    state: str = "submitted"
    state_seq: int = NEVER
    submitted_at: datetime | None = None
    queued_at: datetime | None = None
    # The study whose trial it is.
    group_id: str | None = None
    # As it was submitted.
    spec_project: str | None = None
    # What was said of it afterwards; it replaces the tags and the project of the spec.
    annotated_seq: int = NEVER
    annotated_tags: list[Any] | None = None
    annotated_project: str | None = None
    note: str | None = None
    started_at: datetime | None = None
    cancel_requested: bool = False
    # What was asked last and has not happened yet: stop, pause or nothing.
    requested: str | None = None
    requested_seq: int = NEVER
    run_id: str | None = None
    attempt: int | None = None
    # These belong to the state and are replaced with it.
    waiting_reason: str | None = None
    waiting_detail: str | None = None
    queue_position: int | None = None
    holders: list[Any] | None = None
    not_before_at: datetime | None = None
    finished_at: datetime | None = None
    detail: str | None = None
    result: dict[str, Any] | None = None
    # Of the last refusal of a request for it.
    refused_seq: int = NEVER
    refused_reason: str | None = None
    refused_detail: str | None = None
    refused_errors: list[Any] | None = None


_OF_STATE = dict.fromkeys(
    (
        *("waiting_reason", "waiting_detail", "queue_position", "holders", "not_before_at"),
        *("finished_at", "detail", "result"),
    )
)


_moves_to = partial(moves_to, _OF_STATE)


def _move(job: Job, event: Event[Any], state: str, **facts: Any) -> Job:
    return newest(job, "state_seq", event, state=state, **{**_OF_STATE, **facts})


def _submitted(job: Job, event: Event[JobSubmit]) -> Job:
    return changed(job, submitted_at=earliest(job.submitted_at, event.occurred_at))


def _rejected(job: Job, event: Event[JobRequestRejected]) -> Job:
    """An invalid request is known only by its refusal, and is listed at that time."""
    facts = given(event, refused_reason="reason", refused_detail="detail", refused_errors="errors")
    return changed(
        newest(job, "refused_seq", event, **facts),
        state="rejected" if job.state == "submitted" else job.state,
        submitted_at=earliest(job.submitted_at, event.occurred_at),
    )


def _queued(job: Job, event: Event[JobQueued]) -> Job:
    """The latest possible time of submission, for a command that its topic no longer has."""
    at, trial = event.payload.queued_at, event.payload.trial
    return changed(
        _move(job, event, "queued"),
        group_id=trial.study_id if trial else None,
        spec_project=event.payload.spec.project,
        queued_at=earliest(job.queued_at, at),
        submitted_at=earliest(job.submitted_at, at),
    )


def _retrying(job: Job, event: Event[JobRetrying]) -> Job:
    retry = event.payload
    detail = f"attempt {retry.next_attempt} follows after {retry.backoff_seconds:g} s"
    detail = f"{retry.detail}; {detail}" if retry.detail else detail
    why = {"waiting_reason": "backing_off", "waiting_detail": detail}
    return _move(job, event, "queued", **why, not_before_at=retry.not_before_at)


def _cancelling(job: Job, _event: Event[JobCancelling]) -> Job:
    return changed(job, cancel_requested=True)


def _succeeded(job: Job, event: Event[JobSucceeded]) -> Job:
    return _move(job, event, "succeeded", detail="", **given(event, "finished_at", "result"))


def _requests(what: str) -> Rule:
    return lambda job, event: newest(job, "requested_seq", event, requested=what)


def _stopped(job: Job, event: Event[JobStopped]) -> Job:
    ended = newest(job, "requested_seq", event, requested=None)
    return _move(ended, event, "stopped", **given(event, "finished_at", "result", detail="reason"))


def _paused(job: Job, event: Event[JobPaused]) -> Job:
    done = newest(job, "requested_seq", event, requested=None)
    return _move(done, event, "paused", **given(event, detail="reason"))


def _resumed(job: Job, event: Event[JobResumed]) -> Job:
    done = newest(job, "requested_seq", event, requested=None)
    return _move(done, event, "queued") if event.payload.queued_at else done


def _annotated(job: Job, event: Event[JobAnnotated]) -> Job:
    facts = given(event, "note", annotated_tags="tags", annotated_project="project")
    return newest(job, "annotated_seq", event, **facts)


def _starting(job: Job, event: Event[RunStarting]) -> Job:
    return _with_run(_move(job, event, "starting"), event)


def _run_waiting(job: Job, event: Event[RunWaiting]) -> Job:
    wait = event.payload
    if wait.cause is None:
        return _move(job, event, "starting")
    why = {"waiting_reason": str(wait.cause), "waiting_detail": wait.detail}
    return _move(job, event, "starting", **why)


def _started(job: Job, event: Event[RunStarted]) -> Job:
    started_at = earliest(job.started_at, event.payload.started_at)
    return _with_run(_move(changed(job, started_at=started_at), event, "running"), event)


def _with_run(job: Job, event: Event[Any]) -> Job:
    is_older = event.payload.attempt < (job.attempt or 0)
    return job if is_older else changed(job, **given(event, "run_id", "attempt"))


def _key_of(event: Event[Any]) -> Key | None:
    payload = event.payload
    if isinstance(payload, JobSubmit):
        return (subject_of(event),)
    if isinstance(payload, JobRequestRejected) and payload.reason in _OF_NO_REQUEST:
        return None
    return (payload.job_id,)


JOBS = Noun(
    table="jobs",
    view=Job,
    key=("job_id",),
    key_of=_key_of,
    rules={
        JobSubmit: _submitted,
        JobRequestRejected: _rejected,
        JobQueued: _queued,
        JobWaiting: _moves_to(
            "queued",
            *("queue_position", "holders", "not_before_at"),
            waiting_reason="reason",
            waiting_detail="detail",
        ),
        JobRetrying: _retrying,
        JobCancelling: _cancelling,
        JobSucceeded: _succeeded,
        JobFailed: _moves_to("failed", "finished_at", "detail"),
        JobCancelled: _moves_to("cancelled", "finished_at", detail="reason"),
        JobStopping: _requests("stop"),
        JobStopped: _stopped,
        JobPausing: _requests("pause"),
        JobPaused: _paused,
        JobResumed: _resumed,
        JobAnnotated: _annotated,
        RunStarting: _starting,
        RunWaiting: _run_waiting,
        RunStarted: _started,
    },
)
