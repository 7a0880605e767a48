"""The page that compares jobs: their curves over each other, and what differs in what they ran."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from drivetrain_schemas.ids import JobId
from services.gateway import parked_queries, queries
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.core.comparison import differences
from services.gateway.core.reproduction import compared
from services.gateway.pages.rendering import page
from services.gateway.rest.jobs import find_job
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)

MAX_JOBS = 10


@router.get("/compare")
async def compare(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    job: Annotated[list[JobId], Query(min_length=1, max_length=MAX_JOBS)],
) -> HTMLResponse:
    """Up to ten jobs."""
    base = base_url(request)
    chosen = dict.fromkeys(job)
    jobs = [await find_job(gateway, caller.tenant_id, job_id, base) for job_id in chosen]
    async with gateway.platform.database.connection() as connection:
        num_parked = await parked_queries.count_open(connection)
        surroundings = [
            await queries.descriptions.newest(connection, shown.job_id) for shown in jobs
        ]
    metrics = {shown.best.name for shown in jobs if shown.best is not None}
    return page(
        request,
        "compare.html",
        jobs=jobs,
        rows=differences(
            [
                compared(shown.spec or {}, said, {"tags": shown.tags, "project": shown.project})
                for shown, said in zip(jobs, surroundings, strict=True)
            ]
        ),
        runs=json.dumps([{"id": shown.job_id, "label": _label(shown, jobs)} for shown in jobs]),
        metric=min(metrics) if len(metrics) == 1 else None,
        is_live=any(shown.finished_at is None for shown in jobs),
        has_chart=gateway.settings.assets_directory is not None,
        num_parked=num_parked,
    )


def _label(job: Any, jobs: list[Any]) -> str:
    """The name, with the beginning of the id where two have the same."""
    name = job.name or "unnamed"
    is_unique = sum(other.name == job.name for other in jobs) == 1
    return name if is_unique else f"{name} {job.job_id.removeprefix('job_')[:8]}"
