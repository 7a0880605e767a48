"""The form on the page of a job that changes its note, tags and project."""

import re

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from drivetrain_schemas.annotations import JobAnnotate
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import JobId
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.pages.forms import fields_of
from services.gateway.problem import invalid
from services.gateway.rest import models
from services.gateway.rest.job_commands import change_job
from services.gateway.rest.jobs import find_job
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)


@router.post("/jobs/{job_id}/annotate")
async def annotate(
    job_id: JobId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    """What is in the form replaces what the job has: an empty field takes it away."""
    fields = await fields_of(request)
    job = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    command = _command(job, fields)
    if command.model_fields_set != {"job_id"}:
        await change_job(gateway, caller, request, command)
    return RedirectResponse(f"/jobs/{job_id}", 303)


def _command(job: models.Job, fields: dict[str, str]) -> JobAnnotate:
    """With what differs only. Raises Problem (422)."""
    note = fields.get("note", "").replace("\r\n", "\n").strip()
    project = fields.get("project", "").strip()
    tags = [tag for tag in re.split(r"[,\s]+", fields.get("tags", "")) if tag]
    wanted = {
        "add_tags": [tag for tag in dict.fromkeys(tags) if tag not in job.tags],
        "remove_tags": [tag for tag in job.tags if tag not in tags],
        "note": None if note == job.note else note,
        "project": None if project == (job.project or "") else project,
    }
    changes = {name: value for name, value in wanted.items() if value not in (None, [])}
    try:
        return JobAnnotate(job_id=job.job_id, **changes)
    except ValidationError as error:
        problem = field_errors(error, contract=JobAnnotate)[0]
        raise invalid(problem.field or "body", problem.message, problem.fix) from None
