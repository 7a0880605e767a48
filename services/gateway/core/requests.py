"""The request for a job or a study, by the id of its subject.

The accepted request counts; until there is one, the first that was made.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.base import canonical_json
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.jobs import JobQueued, JobSubmit
from drivetrain_schemas.studies import StudyImport, StudyStarted, StudySubmit
from services.gateway.core.noun import Key, Noun


@dataclass(frozen=True, slots=True)
class Request:
    """`spec` is canonical text; the rest of it are the fields that lists show."""

    subject_id: str
    request_id: str
    name: str
    spec: str
    is_accepted: bool
    asked_at: datetime
    event_id: str
    pool: str | None = None
    devices: int | None = None
    priority: int | None = None
    max_steps: int | None = None
    study_id: str | None = None
    trial_number: int | None = None
    sampler: str | None = None
    metric: str | None = None
    goal: str | None = None
    tags: list[str] | None = None
    code_sha256: str | None = None


def subject_of(event: Event[Any]) -> str:
    """The id of the job or study that this event requests or accepts."""
    match event.payload:
        case JobSubmit(request_id=request_id):
            return job_id_for(event.tenant_id, request_id)
        case StudySubmit(request_id=request_id) | StudyImport(request_id=request_id):
            return study_id_for(event.tenant_id, request_id)
        case JobQueued(job_id=job_id):
            return job_id
        case StudyStarted(study_id=study_id):
            return study_id
    raise AssertionError(f"{event.type} carries no request")


def _request(event: Event[Any]) -> Request:
    payload = event.payload
    is_job = isinstance(payload, JobSubmit | JobQueued)
    job = payload.spec if is_job else payload.spec.job
    trial = payload.trial if is_job else None
    return Request(
        subject_id=subject_of(event),
        request_id=payload.request_id,
        name=payload.spec.name,
        spec=canonical_json(payload.spec),
        is_accepted=isinstance(payload, JobQueued | StudyStarted),
        asked_at=event.occurred_at,
        event_id=event.event_id,
        pool=job.resources.pool if is_job else None,
        devices=job.resources.devices if is_job else None,
        priority=job.priority if is_job else None,
        max_steps=job.max_steps if is_job else None,
        study_id=trial.study_id if trial else None,
        trial_number=trial.number if trial else None,
        sampler=None if is_job else payload.spec.sampler.value,
        metric=job.metric.name if job.metric else None,
        goal=job.metric.goal.value if job.metric else None,
        tags=list(payload.spec.tags) if is_job else [],
        code_sha256=job.code.sha256 if job.code else None,
    )


def _preferred(request: Request, event: Event[Any]) -> Request:
    return min(request, _request(event), key=_rank)


def _rank(request: Request) -> tuple[bool, datetime, str]:
    return not request.is_accepted, request.asked_at, request.event_id


def _key_of(event: Event[Any]) -> Key:
    return (subject_of(event),)


REQUESTS = Noun(
    table="requests",
    view=Request,
    key=("subject_id",),
    key_of=_key_of,
    new=_request,
    rules=dict.fromkeys((JobSubmit, StudySubmit, StudyImport, JobQueued, StudyStarted), _preferred),
)
