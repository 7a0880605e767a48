"""The page of a job's files: as of its newest save or of a checkpoint, with links to download.

A page of its own, because it reads the object store, which the job's page does not wait for.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from drivetrain_schemas.ids import CheckpointId, JobId
from services.gateway import stored_files
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page
from services.gateway.rest import views
from services.gateway.rest.files import find_checkpoint, find_stored, read_manifest
from services.gateway.rest.jobs import find_job
from services.gateway.rest.requests import base_url

router = APIRouter(include_in_schema=False)

MAX_ROWS = 1000


@router.get("/jobs/{job_id}/files")
async def files(
    job_id: JobId,
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    checkpoint: Annotated[CheckpointId | None, Query()] = None,
) -> HTMLResponse:
    """The files, and the shards where a checkpoint is chosen."""
    job = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    stored: stored_files.StoredFiles | None
    if checkpoint is None:
        stored, manifest = await find_stored(gateway, caller.tenant_id, job_id, None), None
    else:
        row = await find_checkpoint(gateway, caller.tenant_id, checkpoint, job_id)
        manifest = await read_manifest(gateway, row)
        stored = await stored_files.at_checkpoint(gateway.platform.object_store, row)
    async with gateway.platform.database.connection() as connection:
        numbers = await badges(gateway, connection, caller)
    listed = views.job_files(job_id, stored)
    return page(
        request,
        "job_files.html",
        job=job,
        listed=listed.model_copy(update={"files": listed.files[:MAX_ROWS]}),
        num_more=max(0, len(listed.files) - MAX_ROWS),
        checkpoint_id=checkpoint,
        manifest=manifest,
        **numbers,
    )
