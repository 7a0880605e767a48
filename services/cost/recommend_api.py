"""Recommendations for the jobs of a tenant: the shares of their slots, and use of devices."""

from datetime import date, timedelta

import asyncpg
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from drivetrain_schemas.ids import TenantId
from services.cost import low_use
from services.cost.core.recommendations import (
    JobShares,
    Kind,
    busier_devices,
    recommendations,
)
from services.runtime.service import Platform

MAX_DAYS = 92
MAX_SHOWN = 50
# The jobs that saved, or lost, the most: others could not save more.
_JOBS = """
with of_job as (
    select job_id, {sums} from job_shares
    where tenant_id = $1 and job_id <> '' and day between $2 and $3 group by job_id)
select of_job.*, name from (
    (select * from of_job order by checkpointing desc, job_id limit $4)
    union (select * from of_job order by lost desc, job_id limit $4)) as of_job
    left join jobs using (job_id)
order by job_id
"""
_KINDS = ("productive", "checkpointing", "starting", "lost")
_SUMS = ", ".join(
    f"coalesce(sum(micro_usd) filter (where kind = '{kind}'), 0)::bigint as {kind}"
    for kind in _KINDS
)


class Recommended(BaseModel):
    job_id: str
    job_name: str | None
    kind: Kind
    saving_micro_usd: int
    evidence: str
    advice: str


class Recommendations(BaseModel):
    """The largest saving first, at most 50."""

    recommendations: list[Recommended]


def recommend_routes(platform: Platform) -> APIRouter:
    router = APIRouter()

    @router.get("/recommendations/{tenant_id}")
    async def recommend(tenant_id: TenantId, first: date, last: date) -> Recommendations:
        if not timedelta() <= last - first < timedelta(days=MAX_DAYS):
            raise HTTPException(422, f"last: write a day from first to {MAX_DAYS - 1} days later")
        async with platform.database.connection() as connection:
            jobs = await _jobs(connection, tenant_id, first, last)
            low = await low_use.paid_for(connection, tenant_id, first, last, MAX_SHOWN)
        found = [each for job in jobs for each in recommendations(job)]
        found += [each for job in low for each in busier_devices(job)]
        found.sort(key=lambda each: (-each.saving_micro_usd, each.job_id, each.kind))
        return Recommendations(
            recommendations=[
                Recommended.model_validate(each, from_attributes=True) for each in found[:MAX_SHOWN]
            ]
        )

    return router


async def _jobs(
    connection: asyncpg.Connection, tenant_id: str, first: date, last: date
) -> list[JobShares]:
    rows = await connection.fetch(_JOBS.format(sums=_SUMS), tenant_id, first, last, MAX_SHOWN)
    return [JobShares(row["job_id"], row["name"], *(row[kind] for kind in _KINDS)) for row in rows]
