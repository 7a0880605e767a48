"""Routes about jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from drivetrain_schemas.base import Strict
from drivetrain_schemas.ids import JobId, RequestId, job_id_for
from drivetrain_schemas.jobs import JobSpec, JobState
from services.gateway import commands, queries
from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core.silences import by_subject
from services.gateway.problem import invalid, not_found
from services.gateway.rest import alert_views, explanations, models, views
from services.gateway.rest.hidden import refuse_hidden, stored_spec, with_secrets
from services.gateway.rest.positions import position_text, read_position
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url, chosen_request_id

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MAX_PAGE = 500
MAX_CHECKPOINTS = 1000
MAX_WARNINGS = 50  # of all attempts
STATES = ("submitted", "rejected", *(state.value for state in JobState))
_QUEUE_POSITION = ("reason", "detail", "queue_position", "holders")
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=128)]


class SubmitJob(Strict):
    """The same request_id again is the same job; without one, each request is a job of its own."""

    request_id: RequestId | None = None
    spec: JobSpec
    secrets_of: Annotated[
        JobId | None,
        Field(description="Values that are hidden in the spec are taken from this job's spec."),
    ] = None


class CancelJob(Strict):
    """Why, for the timeline."""

    reason: Annotated[str, Field(max_length=512)] = ""


@router.post(
    "",
    status_code=201,
    response_model=models.Job,
    responses={
        200: {"model": models.Job, "description": "The same request was accepted before"},
        202: {"model": models.Job, "description": "Sent; the scheduler has not answered yet"},
        **answers(400, 404, 409, 413, 415, 422),
    },
)
async def submit(
    body: SubmitJob,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> models.Job:
    """Submit a job, and wait up to two seconds for the scheduler's answer."""
    request_id = chosen_request_id(body.request_id, idempotency_key)
    spec = body.spec
    if body.secrets_of is not None:
        source = await stored_spec(gateway, caller.tenant_id, body.secrets_of)
        spec = with_secrets(spec, JobSpec.model_validate(source))
    refuse_hidden(spec)
    status, row = await commands.submit_job(gateway, caller.tenant_id, request_id, spec)
    response.status_code = status
    job_id = job_id_for(caller.tenant_id, request_id)
    response.headers["Location"] = f"/v1/jobs/{job_id}"
    if row is None:
        return await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    return await _whole(gateway, row, base_url(request))


@router.get("/{job_id}", responses=answers(404, 422))
async def get_job(
    job_id: JobId, gateway: GatewayDep, caller: CallerDep, request: Request
) -> models.Job:
    job = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    return await with_queue_position(gateway, job)


@router.post("/{job_id}/cancel", status_code=202, responses=answers(400, 404, 409, 413, 415, 422))
async def cancel(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    body: CancelJob | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Cancel the job; it saves a checkpoint first. Refused (409) once it has ended."""
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    reason = body.reason if body else ""
    is_confirmed = await commands.cancel_job(
        gateway, caller.tenant_id, job_id, reason, idempotency_key
    )
    return models.Accepted(is_confirmed=is_confirmed)


@router.get("/{job_id}/timeline", responses=answers(404, 422))
async def timeline(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    limit: Limit = 200,
    after: str | None = None,
) -> models.Timeline:
    """Everything that happened to the job, oldest first."""
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    position = read_position(after, 3)
    moment = (position[0], _seq(position[1][0]), position[1][1]) if position else None
    async with gateway.platform.database.connection() as connection:
        rows = await queries.timeline.of_subject(connection, "job_id", job_id, moment, limit + 1)
    more = None
    if len(rows) > limit:
        last = rows[limit - 1]
        more = position_text(last["occurred_at"], last["seq"], last["event_id"])
    return models.Timeline(items=[views.timeline_item(row) for row in rows[:limit]], next=more)


@router.get("/{job_id}/explain", responses=answers(404, 422))
async def explain(
    job_id: JobId, gateway: GatewayDep, caller: CallerDep, request: Request
) -> models.Explanation:
    """Why the job is in its state."""
    job = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    return explanations.explanation(await with_queue_position(gateway, job))


@router.get("/{job_id}/checkpoints", responses=answers(404, 422))
async def checkpoints(
    job_id: JobId, gateway: GatewayDep, caller: CallerDep, request: Request
) -> models.CheckpointList:
    """Newest first; deleted and rejected ones too."""
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    async with gateway.platform.database.connection() as connection:
        rows = await queries.checkpoints.of_job(connection, job_id, MAX_CHECKPOINTS)
    return models.CheckpointList(checkpoints=[views.checkpoint(row) for row in rows])


@router.get("/{job_id}/cost", response_model=models.JobCost, responses=answers(404, 422))
async def cost(job_id: JobId, gateway: GatewayDep, caller: CallerDep, request: Request) -> Any:
    """Charged and accruing now."""
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    spend = await gateway.backends.get("cost", f"/spend/jobs/{job_id}")
    return {**spend, "job_id": job_id}


async def spend_of(gateway: Gateway, job_id: str) -> models.Spend | None:
    """Charged and accruing now; None where the cost service does not answer."""
    try:
        answer = await gateway.backends.get("cost", f"/spend/jobs/{job_id}")
    except (PartUnavailable, PartRefused):
        return None
    return models.Spend.model_validate(answer)


async def find_job(gateway: Gateway, tenant_id: str, job_id: str, base: str) -> models.Job:
    """The job, or what is known of a request that was just sent. Raises Problem (404)."""
    async with gateway.platform.database.connection() as connection:
        row = await queries.jobs.find(connection, tenant_id, job_id)
    if row is not None:
        return await _whole(gateway, row, base)
    submission = gateway.submissions.get(tenant_id, job_id)
    if submission is None:
        raise not_found("job", job_id)
    return views.submitted_job(submission, tenant_id, base)


async def with_queue_position(gateway: Gateway, job: models.Job) -> models.Job:
    """A waiting job with its current position in the queue, if the scheduler answers."""
    if job.waiting is None or job.state != "queued":
        return job
    try:
        found = await gateway.backends.get("scheduler", f"/queue/{job.job_id}")
    except (PartUnavailable, PartRefused):
        return job
    known = job.waiting.model_dump() | {
        key: found[key] for key in _QUEUE_POSITION if found[key] is not None
    }
    return job.model_copy(update={"waiting": models.Waiting.model_validate(known)})


async def _whole(gateway: Gateway, row: dict[str, Any], base: str) -> models.Job:
    async with gateway.platform.database.connection() as connection:
        runs = await queries.jobs.runs(connection, row["job_id"])
        alerts = await queries.jobs.alerts(connection, row["job_id"])
        now = gateway.platform.clock.now()
        silences = by_subject(await queries.silences.in_force(connection, row["tenant_id"], now))
        warnings = await queries.jobs.warnings(connection, row["job_id"], MAX_WARNINGS)
        said = await queries.descriptions.newest(connection, row["job_id"])
        found = saved = None
        if row["metric"] is not None:
            found = await queries.checkpoints.best_value(connection, row["job_id"], row["metric"])
            saved = await queries.checkpoints.best_saved(connection, row["job_id"], row["metric"])
    row = {**row, "surroundings": said}
    shown = [alert_views.alert(alert, silences, row["project"]) for alert in alerts]
    return views.job(row, base, views.best(row, found, saved), runs, shown, warnings)


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise invalid("after", "not a position in this list", "use `next` unchanged")
    return int(text)
