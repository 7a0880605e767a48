"""Routes of the pages: the same reads as the API's, for people.

Buttons are plain forms that answer with a redirect, so they work without the script. Each page
carries the stream's position before its reads; the script continues from there, so a page may
receive an event twice and never misses one.
"""

import secrets
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from drivetrain_schemas.ids import CheckpointId, JobId
from drivetrain_schemas.jobs import JobPause, JobResume, WaitingReason
from services.gateway import commands, login_codes, queries
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.core import failures, sessions
from services.gateway.pages import (
    alerts,
    annotations,
    compare,
    costs,
    files,
    fleet,
    job_list,
    log_file,
    parked,
    study,
)
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import FOLDER, page, stream_position
from services.gateway.problem import Problem, not_found
from services.gateway.queries.job_list import Wanted
from services.gateway.rest import explanations, models, views
from services.gateway.rest.job_commands import change_job
from services.gateway.rest.job_list import find_jobs
from services.gateway.rest.jobs import find_job, spend_of, with_queue_position
from services.gateway.rest.platform import find_nodes
from services.gateway.rest.positions import position_text, read_position
from services.gateway.rest.problems import TITLES
from services.gateway.rest.reproduction import reproduction_of
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)

TIMELINE_ROWS = 300
CHECKPOINT_ROWS = 100
STUDY_ROWS = 100
QUEUE_ROWS = 50
# The path that a browser without a session asked for, in the scope of the sign-in page.
WANTED = "drivetrain.wanted"


class Static(StaticFiles):
    """Files that the browser revalidates each time, mostly with 304 as the answer."""

    def file_response(self, *arguments: Any, **keywords: Any) -> Response:
        response = super().file_response(*arguments, **keywords)
        response.headers["cache-control"] = "no-cache"
        return response


def install(app: FastAPI, assets_directory: Path | None) -> None:
    app.include_router(router)
    app.include_router(alerts.router)
    app.include_router(annotations.router)
    app.include_router(compare.router)
    app.include_router(costs.router)
    app.include_router(files.router)
    app.include_router(fleet.router)
    app.include_router(job_list.router)
    app.include_router(parked.router)
    app.include_router(log_file.router)
    app.include_router(study.router)
    app.mount("/static", Static(directory=FOLDER / "static"))
    if assets_directory is not None:
        app.mount("/assets", Static(directory=assets_directory, check_dir=False))


def problem_page(request: Request, problem: Problem) -> Response:
    """A refusal for people."""
    title = TITLES.get(problem.status, "The request failed")
    return page(request, "problem.html", problem.status, problem=problem, title=title)


@router.get("/jobs/{job_id}")
async def job(
    job_id: JobId,
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    events: Literal["all", "notable"] = "notable",
) -> HTMLResponse:
    """`events`: with the checkpoints that were saved and deleted, or without."""
    has_all = events == "all"
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        history = await queries.timeline.newest(
            connection, "job_id", job_id, TIMELINE_ROWS, only_notable=not has_all
        )
        saved = await queries.checkpoints.of_job(
            connection, job_id, CHECKPOINT_ROWS, with_deleted=has_all
        )
        numbers = await badges(gateway, connection, caller)
    found = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    shown = await with_queue_position(gateway, found)
    return page(
        request,
        "job.html",
        position=stream_position(stream),
        job_id=job_id,
        job=shown,
        sentence=explanations.sentence(shown),
        command=shlex.join(shown.spec["command"]) if shown.spec else "",
        specification=shown.spec,
        last_failure=explanations.last_failure(shown),
        last_log=failures.last_log(history) if _has_failed(shown) else "",
        has_all=has_all,
        timeline=[views.timeline_item(row) for row in history],
        checkpoints=[views.checkpoint(row) for row in saved],
        lengths=alerts.LENGTHS,
        spend=await spend_of(gateway, job_id),
        reproduction=await reproduction_of(gateway, caller.tenant_id, found),
        **numbers,
        has_chart=gateway.settings.assets_directory is not None,
    )


@router.post("/jobs/{job_id}/cancel")
async def cancel(
    job_id: JobId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    await commands.cancel_job(gateway, caller.tenant_id, job_id, "", None)
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/pause")
async def pause(
    job_id: JobId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    await change_job(gateway, caller, request, JobPause(job_id=job_id))
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/resume")
async def resume(
    job_id: JobId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    await change_job(gateway, caller, request, JobResume(job_id=job_id))
    return RedirectResponse(f"/jobs/{job_id}", 303)


@router.post("/checkpoints/{checkpoint_id}/pin")
async def pin(
    checkpoint_id: CheckpointId, request: Request, gateway: GatewayDep, caller: CallerDep
) -> Response:
    async with gateway.platform.database.connection() as connection:
        row = await queries.checkpoints.find(connection, caller.tenant_id, checkpoint_id)
    if row is None:
        raise not_found("checkpoint", checkpoint_id)
    await commands.pin_checkpoint(gateway, caller.tenant_id, row, None)
    return RedirectResponse(f"/jobs/{row['job_id']}#checkpoints", 303)


@router.get("/nodes")
async def nodes(request: Request, gateway: GatewayDep, caller: CallerDep) -> HTMLResponse:
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        numbers = await badges(gateway, connection, caller)
        counts = await queries.jobs.count(connection, caller.tenant_id)
    wanted = Wanted(state="queued", sort="oldest")
    waiting = await find_jobs(gateway, caller.tenant_id, wanted, None, QUEUE_ROWS)
    return page(
        request,
        "nodes.html",
        position=stream_position(stream),
        nodes=await find_nodes(gateway, caller),
        queue=[views.job_summary(row, base_url(request)) for row in waiting.rows],
        num_waiting=counts.get("queued", 0),
        explain=explanations.explain,
        **numbers,
    )


@router.get("/studies")
async def studies(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    after: Annotated[str | None, Query(max_length=512)] = None,
) -> HTMLResponse:
    position = read_position(after, 2)
    at = (position[0], position[1][0]) if position else None
    async with gateway.platform.database.connection() as connection:
        stream = await queries.timeline.head(connection)
        rows = await queries.studies.page(connection, caller.tenant_id, at, STUDY_ROWS + 1)
        numbers = await badges(gateway, connection, caller)
    more = None
    if len(rows) > STUDY_ROWS:
        last = rows[STUDY_ROWS - 1]
        more = position_text(last["listed_at"], last["study_id"])
    return page(
        request,
        "studies.html",
        position=stream_position(stream),
        studies=[views.study_summary(row, base_url(request)) for row in rows[:STUDY_ROWS]],
        more=more,
        **numbers,
    )


@router.get("/login")
async def login(
    request: Request, gateway: GatewayDep, code: Annotated[str, Query(max_length=128)] = ""
) -> Response:
    """Accept the code once and set a session cookie. The page forwards by itself: a redirect would
    count as coming from where the link was clicked, and a strict cookie would not be sent."""
    wanted = sessions.shown_page(request.scope.get(WANTED, "/"))
    now = gateway.platform.clock.now()
    async with gateway.platform.database.connection() as connection:
        is_good = await login_codes.take(connection, sessions.code_digest(code), now)
    if not is_good:
        return page(request, "sign_in.html", 401, is_used=True, wanted=wanted)
    response = page(request, "signed_in.html", wanted=wanted)
    secret = gateway.settings.session_secret()
    response.set_cookie(
        sessions.cookie_name(secret),
        sessions.new_session(secret, now, secrets.token_urlsafe(12)),
        max_age=int(sessions.SESSION_LIFE.total_seconds()),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.get("/sign-in")
async def sign_in(request: Request) -> HTMLResponse:
    wanted = sessions.shown_page(request.scope.get(WANTED, "/"))
    return page(request, "sign_in.html", 401, is_used=False, wanted=wanted)


@router.get("/favicon.ico")
async def favicon() -> Response:
    return RedirectResponse("/static/favicon.svg", 308)


def _has_failed(job: models.Job) -> bool:
    """It failed, or waits for its next attempt because the last one did."""
    is_retrying = job.waiting is not None and job.waiting.reason == WaitingReason.BACKING_OFF
    return job.state == "failed" or is_retrying
