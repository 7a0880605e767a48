"""Routes to what a job logged besides numbers: which names and steps there are, and the bytes.

What a program logged is never shown as a page of this site: the type of an answer follows from its
kind alone, browsers may not guess another, and nothing in it may run or load anything.
"""

import hashlib
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response

from drivetrain_schemas.ids import JobId
from drivetrain_schemas.media import MAX_MEDIA_BYTES, media_directory
from services.gateway import queries
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.problem import Problem, not_found
from services.gateway.rest import models
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url
from services.runtime.object_store import NoSuchObject

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MAX_STEPS = 1000
Name = Annotated[str, Query(min_length=1, max_length=128)]
Step = Annotated[int, Query(ge=0, le=2**53)]
LastStep = Annotated[int | None, Query(ge=0, le=2**53)]
TYPES = {
    "histogram": "application/json",
    "table": "application/json",
    "text": "text/plain; charset=utf-8",
    "file": "application/octet-stream",
}
IMAGE_TYPES = {form: f"image/{form}" for form in ("png", "jpeg", "gif", "webp")}
_CONTENT: dict[int | str, dict[str, Any]] = {200: {"description": "The bytes"}}


@router.get("/{job_id}/media", response_model=models.MediaNames, responses=answers(404, 422))
async def names(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    limit: Annotated[int, Query(ge=1, le=MAX_STEPS)] = 500,
) -> Any:
    """The names under which the job logged pictures, histograms, tables, texts and files."""
    await _check_job(gateway, caller, job_id)
    found = await gateway.backends.get("metrics", "/media", {"job_id": job_id, "limit": limit})
    return {"job_id": job_id, **found}


@router.get("/{job_id}/media/items", response_model=models.MediaItems, responses=answers(404, 422))
async def items(
    job_id: JobId,
    name: Name,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    to_step: LastStep = None,
    limit: Annotated[int, Query(ge=1, le=MAX_STEPS)] = 500,
) -> Any:
    """What was logged under a name at its last steps, up to `to_step`."""
    await _check_job(gateway, caller, job_id)
    found = await _find(gateway, job_id, name, to_step, limit)
    url = f"{base_url(request)}/v1/jobs/{job_id}/media/content"
    for one in found:
        place = {"name": name, "step": one["step"], "item": one["item"]}
        one["content_url"] = f"{url}?{urlencode(place)}"
    return {"job_id": job_id, "name": name, "items": found}


@router.get(
    "/{job_id}/media/content", response_class=Response, responses={**_CONTENT, **answers(404, 422)}
)
async def content(
    job_id: JobId,
    name: Name,
    step: Step,
    gateway: GatewayDep,
    caller: CallerDep,
    item: Annotated[int, Query(ge=0, le=999)] = 0,
) -> Response:
    """The bytes of one of them."""
    await _check_job(gateway, caller, job_id)
    found = await _find(gateway, job_id, name, step, 1)
    one = next((one for one in found if (one["step"], one["item"]) == (step, item)), None)
    if one is None:
        raise not_found("media", f"{name} at step {step}")
    data = await _read(gateway, caller, job_id, one["sha256"])
    return Response(data, headers=_headers(one, len(data)))


async def _check_job(gateway: Gateway, caller: Caller, job_id: str) -> None:
    async with gateway.platform.database.connection() as connection:
        if await queries.jobs.find(connection, caller.tenant_id, job_id) is None:
            raise not_found("job", job_id)


async def _find(
    gateway: Gateway, job_id: str, name: str, to_step: int | None, limit: int
) -> list[dict[str, Any]]:
    given = {"job_id": job_id, "name": name, "to_step": to_step, "limit": limit}
    found: list[dict[str, Any]] = (await gateway.backends.get("metrics", "/media", given))["items"]
    return found


async def _read(gateway: Gateway, caller: Caller, job_id: str, sha256: str) -> bytes:
    """Only what has this digest: programs of the job can write anything there."""
    data = bytearray()
    gone = Problem(404, "not_found", "it is no longer stored, or is not what its name says")
    async with gateway.reads_of_media:
        try:
            key = f"{media_directory(caller.tenant_id, job_id)}/{sha256}"
            async for piece in gateway.platform.object_store.stream(key):
                data += piece
                if len(data) > MAX_MEDIA_BYTES:
                    raise gone
        except NoSuchObject:
            raise gone from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise gone
    return bytes(data)


def _headers(one: dict[str, Any], size_bytes: int) -> dict[str, str]:
    is_image = one["media"] == "image"
    known = IMAGE_TYPES.get(one["image_form"] or "") if is_image else TYPES.get(one["media"])
    name = quote(one["file_name"] or f"{one['name']}-{one['step']}", safe="")
    shown = "inline" if known is not None and one["media"] != "file" else "attachment"
    return {
        "Content-Type": known or TYPES["file"],
        "Content-Disposition": f"{shown}; filename*=UTF-8''{name}",
        "Content-Length": str(size_bytes),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        # Another attempt may replace it; its digest tells.
        "ETag": f'"{one["sha256"]}"',
        "Cache-Control": "private, no-cache",
    }
