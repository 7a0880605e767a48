"""The route that compares jobs: what they ran, and what it gave."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request

from drivetrain_schemas.ids import JobId
from drivetrain_schemas.redaction import redacted
from services.gateway import queries
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core.comparison import Line, differences
from services.gateway.core.reproduction import compared
from services.gateway.rest import models
from services.gateway.rest.jobs import find_job
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url

router = APIRouter(prefix="/v1", tags=["jobs"])

MAX_JOBS = 10
Compared = Annotated[list[JobId], Query(min_length=1, max_length=MAX_JOBS)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`lines`: with one value per job, in the order of `jobs`."""

    jobs: list[models.Job]
    lines: list[Line]


@router.get("/comparison", response_model=models.Comparison, responses=answers(404, 422))
async def comparison(
    gateway: GatewayDep, caller: CallerDep, request: Request, job_id: Compared
) -> models.Comparison:
    """Up to ten jobs (`job_id` repeated): every hyperparameter, and of their specifications,
    packages, data and devices what differs."""
    found = await compare(gateway, caller.tenant_id, job_id, base_url(request))
    return models.Comparison(
        jobs=[models.ComparedJob.model_validate(job.model_dump()) for job in found.jobs],
        lines=[
            models.ComparedLine(
                name=line.name,
                is_hyperparameter=line.is_hyperparameter,
                differs=line.differs,
                values=list(line.values),
            )
            for line in found.lines
        ],
    )


async def compare(gateway: Gateway, tenant_id: str, job_ids: list[str], base: str) -> Comparison:
    """A job that is named twice is there once. Raises Problem (404)."""
    jobs = [await find_job(gateway, tenant_id, job_id, base) for job_id in dict.fromkeys(job_ids)]
    async with gateway.platform.database.connection() as connection:
        said = [redacted(await queries.descriptions.newest(connection, job.job_id)) for job in jobs]
    return Comparison(
        jobs,
        differences(
            [
                compared(job.spec or {}, one, {"tags": job.tags, "project": job.project})
                for job, one in zip(jobs, said, strict=True)
            ]
        ),
    )
