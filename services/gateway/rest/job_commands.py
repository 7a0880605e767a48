"""Routes that change a job that exists: stop, pause, resume, annotate. (Cancel: `rest.jobs`.)"""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, ValidationError

from drivetrain_schemas.annotations import JobAnnotate, NameOrNone, Note, Tags
from drivetrain_schemas.base import Strict
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import JobId
from drivetrain_schemas.jobs import JobPause, JobResume, JobStop
from services.gateway import job_commands
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.problem import invalid
from services.gateway.rest import models
from services.gateway.rest.jobs import CancelJob, IdempotencyKey, find_job
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_REFUSALS = answers(400, 404, 409, 413, 415, 422)


class StopJob(Strict):
    """Why, for the timeline, and whether the run saves a last checkpoint."""

    reason: Annotated[str, Field(max_length=512)] = ""
    checkpoint: Annotated[bool, Field(strict=True)] = True


@router.post("/{job_id}/stop", status_code=202, responses=_REFUSALS)
async def stop(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    body: StopJob | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """End the job early. It has not failed: it is `stopped`. Refused (409) once it has ended."""
    wanted = body or StopJob()
    command = JobStop(job_id=job_id, reason=wanted.reason, checkpoint=wanted.checkpoint)
    return await change_job(gateway, caller, request, command, idempotency_key)


@router.post("/{job_id}/pause", status_code=202, responses=_REFUSALS)
async def pause(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    body: CancelJob | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Save a checkpoint and give up its slots, until it is resumed."""
    command = JobPause(job_id=job_id, reason=body.reason if body else "")
    return await change_job(gateway, caller, request, command, idempotency_key)


@router.post("/{job_id}/resume", status_code=202, responses=_REFUSALS)
async def resume(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Queue a paused job again, at its old place; it continues from its newest checkpoint."""
    return await change_job(gateway, caller, request, JobResume(job_id=job_id), idempotency_key)


class AnnotateJob(Strict):
    """What is left out stays as it is; a note or a project of "" takes it away."""

    add_tags: Tags = ()
    remove_tags: Tags = ()
    note: Note | None = None
    project: NameOrNone | None = None


@router.post("/{job_id}/annotate", status_code=202, responses=_REFUSALS)
async def annotate(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    body: AnnotateJob,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Change the tags, the note or the project of a job, in any state and after its end."""
    if not body.model_fields_set:
        fix = "give add_tags, remove_tags, note or project"
        raise invalid("body", "nothing is to be changed", fix)
    try:
        command = JobAnnotate(job_id=job_id, **body.model_dump())
    except ValidationError as error:
        problem = field_errors(error, contract=JobAnnotate)[0]
        raise invalid(problem.field or "body", problem.message, problem.fix) from None
    return await change_job(gateway, caller, request, command, idempotency_key)


async def change_job(
    gateway: Gateway,
    caller: Caller,
    request: Request,
    command: job_commands.JobCommand,
    key: str | None = None,
) -> models.Accepted:
    """Raises Problem, 404 where the caller has no such job."""
    await find_job(gateway, caller.tenant_id, command.job_id, base_url(request))
    is_confirmed = await job_commands.change_job(gateway, caller.tenant_id, command, key)
    return models.Accepted(is_confirmed=is_confirmed)
