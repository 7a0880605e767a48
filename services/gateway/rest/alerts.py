"""Routes about alerts and silences."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from drivetrain_schemas.base import Strict, UtcTime
from drivetrain_schemas.ids import JobId, SilenceId
from drivetrain_schemas.jobs import Name
from drivetrain_schemas.metrics import AlertKind
from drivetrain_schemas.silences import (
    DEFAULT_SILENCE,
    MAX_SILENCE,
    SilenceSpec,
    silence_id_for,
)
from drivetrain_schemas.text import free_text
from services.gateway import queries, silence_commands
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core.silences import by_subject
from services.gateway.problem import invalid, not_found
from services.gateway.queries.alerts import At, State, Wanted
from services.gateway.rest import alert_views, models
from services.gateway.rest.jobs import MAX_PAGE, IdempotencyKey, find_job
from services.gateway.rest.positions import position_text, read_position
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url

router = APIRouter(prefix="/v1", tags=["alerts"])

MAX_ALERTS_OF_JOB = 100


class AlertFilter(BaseModel):
    """What a list of alerts may be narrowed to."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    state: State | None = None
    alert: AlertKind | None = None
    job_id: JobId | None = None
    project: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    after: Annotated[str | None, Field(max_length=512)] = None

    def wanted(self) -> Wanted:
        return Wanted(self.state, self.alert, self.job_id, self.project)


class AlertListQuery(AlertFilter):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50


class SetSilence(Strict):
    """Silence an alert, or every one, of a job, of a project or (without both) of all jobs.

    Until `ends_at`, or for `for_seconds`; 2 hours without both, 30 days at most.
    """

    alert: AlertKind | None = None
    job_id: JobId | None = None
    project: Name | None = None
    ends_at: UtcTime | None = None
    for_seconds: Annotated[
        int | None, Field(strict=True, ge=1, le=int(MAX_SILENCE.total_seconds()))
    ] = None
    reason: Annotated[str, free_text(512)] = ""


@router.get("/alerts", responses=answers(422))
async def list_alerts(
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    query: Annotated[AlertListQuery, Query()],
) -> models.AlertList:
    """Newest first. Open: it is raised, and its run has not ended.

    A search by name, project or state (ended) looks at 1,000 alerts and goes on from there with
    `next`.
    """
    return await find_alerts(gateway, caller.tenant_id, query, query.limit, base_url(request))


@router.get("/jobs/{job_id}/alerts", responses=answers(404, 422))
async def alerts_of_job(
    job_id: JobId, gateway: GatewayDep, caller: CallerDep, request: Request
) -> models.AlertList:
    """The newest 100 of all its attempts; those of `GET /v1/jobs/{job_id}` are only the active."""
    base = base_url(request)
    await find_job(gateway, caller.tenant_id, job_id, base)
    wanted = AlertFilter(job_id=job_id)
    return await find_alerts(gateway, caller.tenant_id, wanted, MAX_ALERTS_OF_JOB, base)


@router.get("/silences", responses=answers())
async def list_silences(gateway: GatewayDep, caller: CallerDep) -> models.SilenceList:
    """The silences in force."""
    rows = await silences_in_force(gateway, caller.tenant_id)
    return models.SilenceList(silences=[models.Silence.model_validate(row) for row in rows])


@router.post("/silences", status_code=202, responses=answers(400, 413, 415, 422))
async def set_silence(
    body: SetSilence,
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.SilenceAccepted:
    """Silence alerts, or change the silence that there is of them; waits up to two seconds.

    Webhooks are not called for what is raised until it ends; what is open then is sent.
    """
    spec = _spec(body, gateway)
    if spec.job_id is not None:
        async with gateway.platform.database.connection() as connection:
            if not await queries.jobs.find(connection, caller.tenant_id, spec.job_id):
                message = f"there is no job {spec.job_id}"
                raise invalid("job_id", message, "submit it first, or correct the id")
    is_confirmed = await silence_commands.set_silence(
        gateway, caller.tenant_id, spec, idempotency_key
    )
    return models.SilenceAccepted(
        is_confirmed=is_confirmed,
        silence_id=silence_id_for(caller.tenant_id, spec),
        ends_at=spec.ends_at,
    )


@router.post("/silences/{silence_id}/end", status_code=202, responses=answers(404, 413, 415, 422))
async def end_silence(
    silence_id: SilenceId,
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """End the silence now; what is open of its alerts is sent."""
    async with gateway.platform.database.connection() as connection:
        if await queries.silences.find(connection, caller.tenant_id, silence_id) is None:
            raise not_found("silence", silence_id)
    is_confirmed = await silence_commands.end_silence(
        gateway, caller.tenant_id, silence_id, idempotency_key
    )
    return models.Accepted(is_confirmed=is_confirmed)


async def find_alerts(
    gateway: Gateway, tenant_id: str, query: AlertFilter, limit: int, base: str
) -> models.AlertList:
    """One page. Raises Problem (422) where the position is invalid."""
    position = read_position(query.after, 3)
    after = At(position[0], position[1][0], position[1][1]) if position else None
    async with gateway.platform.database.connection() as connection:
        found = await queries.alerts.page(connection, tenant_id, query.wanted(), after, limit)
    silences = by_subject(await silences_in_force(gateway, tenant_id))
    return models.AlertList(
        alerts=[alert_views.listed_alert(row, silences, base) for row in found.rows],
        next=None if found.next is None else position_text(*found.next),
    )


async def silences_in_force(gateway: Gateway, tenant_id: str) -> list[dict[str, Any]]:
    now = gateway.platform.clock.now()
    async with gateway.platform.database.connection() as connection:
        return await queries.silences.in_force(connection, tenant_id, now)


def _spec(body: SetSilence, gateway: Gateway) -> SilenceSpec:
    """Raises Problem (422)."""
    if body.job_id is not None and body.project is not None:
        raise invalid("project", "job_id and project are given", "give one of them")
    if body.ends_at is not None and body.for_seconds is not None:
        raise invalid("for_seconds", "ends_at and for_seconds are given", "give one of them")
    ends_at = body.ends_at
    if ends_at is None:
        seconds = body.for_seconds
        lasts = DEFAULT_SILENCE if seconds is None else timedelta(seconds=seconds)
        ends_at = gateway.platform.clock.now() + lasts
    chosen = body.model_dump(include={"alert", "job_id", "project", "reason"})
    return SilenceSpec(**chosen, ends_at=ends_at)
