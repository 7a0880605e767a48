"""Routes that repeat a job: what it ran with, what would differ, and the repetition itself."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from drivetrain_schemas.base import Strict
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.ids import JobId, RequestId
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.redaction import redacted
from services.gateway import queries
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core import reproduction
from services.gateway.problem import Problem
from services.gateway.rest import models
from services.gateway.rest.hidden import stored_spec
from services.gateway.rest.jobs import IdempotencyKey, SubmitJob, find_job, submit
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url
from services.runtime.errors import is_temporary
from services.runtime.object_store import NoSuchObject

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class RerunJob(Strict):
    """The same request_id again is the same job."""

    request_id: RequestId | None = None


@router.get("/{job_id}/reproduce", responses=answers(404, 422))
async def reproduce(
    job_id: JobId, gateway: GatewayDep, caller: CallerDep, request: Request
) -> models.Reproduction:
    """What the job ran with, without secrets, and what a repetition of it would have otherwise.

    A rerun has the secrets: it is made of the stored specification.
    """
    job = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    return await reproduction_of(gateway, caller.tenant_id, job)


@router.post(
    "/{job_id}/rerun",
    status_code=201,
    response_model=models.Job,
    responses={
        202: {"model": models.Job, "description": "Sent; the scheduler has not answered yet"},
        **answers(400, 404, 409, 413, 415, 422),
    },
)
async def rerun(
    job_id: JobId,
    gateway: GatewayDep,
    caller: CallerDep,
    request: Request,
    response: Response,
    body: RerunJob | None = None,
    idempotency_key: IdempotencyKey = None,
) -> models.Job:
    """Submit the same spec again, with the same code and seed, as a job of its own."""
    job = await find_job(gateway, caller.tenant_id, job_id, base_url(request))
    found = await reproduction_of(gateway, caller.tenant_id, job)
    seed = found.seed if found.seed is not None and found.seed < 2**31 else None
    stored = await stored_spec(gateway, caller.tenant_id, job_id)
    try:
        spec = JobSpec.model_validate(reproduction.repeated(job_id, stored, seed))
    except ValidationError as error:
        errors = field_errors(error, contract=JobSpec)
        message = f"the spec of {job_id} is not valid any more"
        raise Problem(422, "invalid_spec", message, errors) from None
    wanted = SubmitJob(request_id=body.request_id if body else None, spec=spec)
    return await submit(wanted, gateway, caller, request, response, idempotency_key)


async def reproduction_of(gateway: Gateway, tenant_id: str, job: models.Job) -> models.Reproduction:
    spec = job.spec or {}
    original = spec.get("rerun_of")
    pool = (spec.get("resources") or {}).get("pool") or ""
    async with gateway.platform.database.connection() as connection:
        said = redacted(await queries.descriptions.newest(connection, job.job_id))
        before = None
        if original and await queries.jobs.find(connection, tenant_id, original):
            before = redacted(await queries.descriptions.newest(connection, original))
        types = await queries.descriptions.device_types(connection, pool)
    seed = reproduction.seed_of(spec, job.result, said)
    present = reproduction.Present(await _has_code(gateway, spec.get("code")), types)
    return models.Reproduction(
        job_id=job.job_id,
        command=list(spec.get("command") or ()),
        code_sha256=(spec.get("code") or {}).get("sha256"),
        image=spec.get("image"),
        source=spec.get("source"),
        seed=seed,
        variables=sorted(spec.get("environment") or ()),
        surroundings=said,
        rerun_of=original,
        would_differ=_shown(reproduction.would_differ(spec, said, seed, present)),
        has_differed=_shown(reproduction.has_differed(before, said)),
    )


def _shown(found: Any) -> list[models.Difference]:
    return [models.Difference(**asdict(one)) for one in found]


async def _has_code(gateway: Gateway, code: dict[str, Any] | None) -> bool | None:
    """None where it is not in our store, or the store does not answer."""
    if code is None or not code["uri"].startswith("store:"):
        return None
    key = code["uri"].removeprefix("store:")
    try:
        return bool(await gateway.platform.object_store.get_range(key, 0, 1))
    except NoSuchObject:
        return False
    except Exception as error:
        if not is_temporary(error):
            raise
        return None
