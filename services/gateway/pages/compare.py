"""The page that compares jobs: their curves over each other, and what differs in what they ran."""

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from services.gateway.context import CallerDep, GatewayDep
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page
from services.gateway.rest import comparison
from services.gateway.rest.jobs import spend_of
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)


@router.get("/compare")
async def compare(
    request: Request, gateway: GatewayDep, caller: CallerDep, job: comparison.Compared
) -> HTMLResponse:
    """Up to ten jobs."""
    found = await comparison.compare(gateway, caller.tenant_id, job, base_url(request))
    jobs = found.jobs
    async with gateway.platform.database.connection() as connection:
        numbers = await badges(gateway, connection, caller)
    metrics = {shown.best.name for shown in jobs if shown.best is not None}
    return page(
        request,
        "compare.html",
        jobs=jobs,
        rows=found.lines,
        spends=await asyncio.gather(*(spend_of(gateway, shown.job_id) for shown in jobs)),
        runs=json.dumps([{"id": shown.job_id, "label": _label(shown, jobs)} for shown in jobs]),
        metric=min(metrics) if len(metrics) == 1 else None,
        is_live=any(shown.finished_at is None for shown in jobs),
        has_chart=gateway.settings.assets_directory is not None,
        **numbers,
    )


def _label(job: Any, jobs: list[Any]) -> str:
    """The name, with the beginning of the id where two have the same."""
    name = job.name or "unnamed"
    is_unique = sum(other.name == job.name for other in jobs) == 1
    return name if is_unique else f"{name} {job.job_id.removeprefix('job_')[:8]}"
