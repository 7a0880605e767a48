"""Routes to what a job has stored: its files, and the shards of its checkpoints.

Content is always an attachment of no type, so that no browser shows what a program of a job wrote
as a page of this site.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import StringConstraints

from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.ids import CheckpointId, JobId
from drivetrain_schemas.units import Attempt
from services.gateway import queries, stored_files
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.problem import Problem, not_found
from services.gateway.queries.rows import Row
from services.gateway.rest import models, views
from services.gateway.rest.jobs import find_job
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url
from services.runtime.object_store import NoSuchObject

router = APIRouter(prefix="/v1", tags=["files"])

MAX_CHECKPOINTS = 1000
MAX_PATHS = 100
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The content",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
FilePath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
AtCheckpoint = Annotated[CheckpointId | None, Query(description="as of this checkpoint")]
OfAttempt = Annotated[
    Attempt | None, Query(description="the last of this attempt, while they are kept")
]


@router.get("/jobs/{job_id}/files", responses=answers(404, 422))
async def files(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    checkpoint: AtCheckpoint = None,
    attempt: OfAttempt = None,
) -> models.JobFiles:
    """What the job's program wrote: as of its newest save, of an attempt or of a checkpoint."""
    await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    stored = await find_stored(gateway, caller.tenant_id, job_id, checkpoint, attempt=attempt)
    return views.job_files(job_id, stored)


@router.get(
    "/jobs/{job_id}/files/content",
    response_class=StreamingResponse,
    responses={**_CONTENT, **answers(404, 422, 429)},
)
async def content(
    job_id: JobId,
    path: Annotated[list[FilePath], Query(min_length=1, max_length=MAX_PATHS)],
    gateway: GatewayDep,
    caller: CallerDep,
    checkpoint: AtCheckpoint = None,
    attempt: OfAttempt = None,
) -> StreamingResponse:
    """One of these files; of several, their contents one after another."""
    async with gateway.platform.database.connection() as connection:
        if await queries.jobs.find(connection, caller.tenant_id, job_id) is None:
            raise not_found("job", job_id)
    stored = await find_stored(
        gateway, caller.tenant_id, job_id, checkpoint, gateway.lists, attempt=attempt
    )
    by_path = {file.path: file for file in stored.files.files} if stored else {}
    if missing := next((one for one in path if one not in by_path), None):
        raise not_found("file", missing)
    found = [by_path[one] for one in path]
    store = gateway.platform.object_store
    parts = stored_files.parts_of(store, caller.tenant_id, job_id, found)
    name = path[0].rpartition("/")[2]
    size_bytes = sum(file.size_bytes for file in found)
    return await _attachment(gateway, job_id, parts, name, size_bytes)


@router.get("/checkpoints/{checkpoint_id}/shards", responses=answers(404, 422))
async def shards(
    checkpoint_id: CheckpointId, gateway: GatewayDep, caller: CallerDep
) -> models.ShardList:
    """The stored files of a checkpoint."""
    row = await find_checkpoint(gateway, caller.tenant_id, checkpoint_id)
    manifest = await read_manifest(gateway, row)
    return models.ShardList(
        checkpoint_id=checkpoint_id,
        job_id=row["job_id"],
        step=manifest.step,
        shards=[models.Shard(**shard.model_dump()) for shard in manifest.shards],
    )


@router.get(
    "/checkpoints/{checkpoint_id}/shards/content",
    response_class=StreamingResponse,
    responses={**_CONTENT, **answers(404, 422, 429)},
)
async def shard_content(
    checkpoint_id: CheckpointId,
    key: Annotated[str, Query(min_length=1, max_length=512)],
    gateway: GatewayDep,
    caller: CallerDep,
) -> StreamingResponse:
    """One of these shards."""
    row = await find_checkpoint(gateway, caller.tenant_id, checkpoint_id)
    found = [one for one in (await read_manifest(gateway, row)).shards if one.key == key]
    if not found:
        raise not_found("shard", key)
    directory = row["manifest_key"].rpartition("/")[0]
    stored = gateway.platform.object_store.stream(f"{directory}/{key}")
    pieces = stored_files.verified(stored, found[0].size_bytes, found[0].sha256)
    name = key.rpartition("/")[2]
    return await _attachment(gateway, row["job_id"], pieces, name, found[0].size_bytes)


async def find_stored(
    gateway: Gateway,
    tenant_id: str,
    job_id: str,
    checkpoint_id: str | None,
    kept: stored_files.KeptLists | None = None,
    *,
    attempt: int | None = None,
) -> stored_files.StoredFiles | None:
    """None where nothing was saved yet. Raises Problem (404) for a checkpoint or an attempt of
    which no files are stored."""
    store = gateway.platform.object_store
    if checkpoint_id is not None:
        row = await find_checkpoint(gateway, tenant_id, checkpoint_id, job_id)
        async with gateway.reads_of_lists:
            found = await stored_files.at_checkpoint(store, row, kept)
        if found is None:
            raise not_found("list of files with checkpoint", checkpoint_id)
        return found
    async with gateway.platform.database.connection() as connection:
        rows = await queries.checkpoints.of_job(
            connection, job_id, MAX_CHECKPOINTS, with_deleted=False
        )
    rows = [row for row in rows if attempt in (None, row["attempt"])]
    usable = [row for row in rows if row["is_usable"] and row["manifest_key"]]
    async with gateway.reads_of_lists:
        found = await stored_files.newest(
            store, tenant_id, job_id, usable[:2], kept, attempt=attempt
        )
    if found is None and attempt is not None:
        raise not_found("list of files of attempt", str(attempt))
    return found


async def find_checkpoint(
    gateway: Gateway, tenant_id: str, checkpoint_id: str, job_id: str | None = None
) -> Row:
    """Of this job, where one is named. Raises Problem (404)."""
    async with gateway.platform.database.connection() as connection:
        row = await queries.checkpoints.find(connection, tenant_id, checkpoint_id)
    is_other = row is not None and job_id not in (None, row["job_id"])
    if row is None or row["manifest_key"] is None or is_other:
        raise not_found("checkpoint", checkpoint_id)
    return row


async def read_manifest(gateway: Gateway, row: Row) -> Manifest:
    """Raises Problem (404) where it is no longer stored."""
    try:
        return await stored_files.manifest_of(gateway.platform.object_store, row)
    except stored_files.Gone as error:
        raise Problem(404, "not_found", str(error)) from error


async def _attachment(
    gateway: Gateway, job_id: str, pieces: AsyncIterator[bytes], name: str, size_bytes: int
) -> StreamingResponse:
    """Its first piece is read before the answer begins, so what is gone is a refusal."""
    downloads = gateway.downloads
    if refusal := downloads.refusal(job_id):
        message = f"{refusal}; try again when one has ended"
        raise Problem(429, "too_many_downloads", message, headers={"Retry-After": "5"})
    try:
        with downloads.one(job_id):
            first = await anext(pieces, b"")
    except (stored_files.Gone, NoSuchObject) as error:
        message = f"{name[:120]} is no longer stored, or what is stored is damaged"
        raise Problem(404, "not_found", message) from error

    async def send() -> AsyncIterator[bytes]:
        with downloads.one(job_id):  # an answer that nobody waits for is never begun
            yield first
            async for piece in pieces:
                yield piece

    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Length": str(size_bytes),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(send(), media_type="application/octet-stream", headers=headers)
