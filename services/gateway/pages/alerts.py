"""The page of alerts: open ones with what can be done, silences, and those that have ended.

Forms silence and end silences; they work without the script and answer with a redirect.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import HTMLResponse, RedirectResponse, Response

from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import JobId, SilenceId
from services.gateway import queries
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.pages.badges import badges
from services.gateway.pages.forms import fields_of
from services.gateway.pages.rendering import page, stream_position
from services.gateway.problem import invalid
from services.gateway.rest.alerts import (
    AlertFilter,
    SetSilence,
    end_silence,
    find_alerts,
    list_silences,
    set_silence,
)
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)

OPEN_ROWS = 100
ENDED_ROWS = 30
# What the form offers, in seconds.
LENGTHS = (
    (3600, "1 hour"),
    (7200, "2 hours"),
    (28_800, "8 hours"),
    (86_400, "1 day"),
    (604_800, "1 week"),
    (2_592_000, "30 days"),
)
_BACK = "back"  # the page of this job, instead of that of all alerts


@router.get("/alerts")
async def alerts(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    after: Annotated[str | None, Query(max_length=512)] = None,
) -> HTMLResponse:
    """`after`: a position in the list of those that have ended."""
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        numbers = await badges(gateway, connection, caller)
    tenant_id, base = caller.tenant_id, base_url(request)
    open_ones = await find_alerts(gateway, tenant_id, AlertFilter(state="open"), OPEN_ROWS, base)
    ended = AlertFilter(state="ended", after=after)
    silences = await list_silences(gateway, caller)
    return page(
        request,
        "alerts.html",
        position=stream_position(stream),
        open_alerts=open_ones,
        ended=await find_alerts(gateway, tenant_id, ended, ENDED_ROWS, base),
        silences=silences.silences,
        lengths=LENGTHS,
        after=after,
        **numbers,
    )


@router.post("/alerts/silence")
async def silence(request: Request, gateway: GatewayDep, caller: CallerDep) -> Response:
    """The form names an alert ("" for every one), and a job or a project or neither by `of`."""
    fields = await fields_of(request)
    back = _back(fields)
    of = fields.pop("of", "tenant")
    for other in {"job": ("project",), "project": ("job_id",)}.get(of, ("job_id", "project")):
        fields.pop(other, None)
    seconds = fields.pop("for_seconds", "")
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) < 10):
        raise invalid("for_seconds", "is not a number of seconds", "choose one of the list")
    try:
        body = SetSilence.model_validate({**fields, "for_seconds": int(seconds)})
    except ValidationError as error:
        problem = field_errors(error, contract=SetSilence)[0]
        raise invalid(problem.field or "body", problem.message, problem.fix) from None
    await set_silence(body, gateway, caller)
    return RedirectResponse(back, 303)


@router.post("/silences/{silence_id}/end")
async def end(
    silence_id: SilenceId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    fields = await fields_of(request)
    await end_silence(silence_id, gateway, caller)
    return RedirectResponse(_back(fields), 303)


_JOB_ID: TypeAdapter[str] = TypeAdapter(JobId)


def _back(fields: dict[str, str]) -> str:
    """Where the form was."""
    job_id = fields.pop(_BACK, None)
    if job_id is None:
        return "/alerts"
    try:
        return f"/jobs/{_JOB_ID.validate_python(job_id)}"
    except ValidationError:
        raise invalid(_BACK, "is not a job", "send the page's own form") from None
