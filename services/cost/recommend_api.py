"""Recommendations for the jobs of a tenant."""

from collections.abc import Iterator
from datetime import date

import asyncpg
from fastapi import APIRouter
from pydantic import BaseModel

from drivetrain_schemas.ids import TenantId
from drivetrain_schemas.metrics import AlertKind
from services.cost import low_use
from services.cost import store_recommend as store
from services.cost.core.fewer_devices import fewer_devices
from services.cost.core.prices import PriceBook
from services.cost.core.recommendations import (
    Kind,
    Recommendation,
    busier_devices,
    idle_slots,
    ordered,
    recommendations,
)
from services.cost.core.spot_nodes import spot_nodes
from services.cost.core.steps import midnight
from services.cost.days import check_days
from services.runtime.service import Platform

MAX_DAYS = 92
MAX_SHOWN = 50


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


def recommend_routes(platform: Platform, book: PriceBook) -> APIRouter:
    router = APIRouter()

    @router.get("/recommendations/{tenant_id}")
    async def recommend(tenant_id: TenantId, first: date, last: date) -> Recommendations:
        check_days(first, last, MAX_DAYS)
        async with platform.database.connection() as connection:
            found = await _of_use(connection, tenant_id, first, last)
            found += fewer_devices(await store.done(connection, tenant_id, first, last))
            found += await _of_spot(connection, book, tenant_id, first, last)
        return Recommendations(
            recommendations=[
                Recommended.model_validate(each, from_attributes=True)
                for each in ordered(found)[:MAX_SHOWN]
            ]
        )

    return router


async def _of_use(
    connection: asyncpg.Connection, tenant_id: str, first: date, last: date
) -> list[Recommendation]:
    days = (tenant_id, first, last, MAX_SHOWN)
    found = [each for job in await store.jobs(connection, *days) for each in recommendations(job)]
    low = await low_use.paid_for(connection, AlertKind.LOW_UTILISATION, *days)
    idle = await low_use.paid_for(connection, AlertKind.STALLED, *days)
    found += [each for job in low for each in busier_devices(job)]
    found += [each for job in idle for each in idle_slots(job)]
    return found


async def _of_spot(
    connection: asyncpg.Connection, book: PriceBook, tenant_id: str, first: date, last: date
) -> Iterator[Recommendation]:
    pools = await store.spot_pools(connection, book, midnight(last))
    if not pools:
        return iter(())
    lost = await store.lost_on_spot(connection, first, last)
    jobs = await store.on_demand(connection, tenant_id, first, last, MAX_SHOWN)
    return (each for job in jobs for each in spot_nodes(job, pools, lost))
