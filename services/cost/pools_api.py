"""The read API of who had the pools, day by day."""

from datetime import date

from fastapi import APIRouter
from pydantic import BaseModel

from drivetrain_schemas.ids import TenantId
from services.cost import store
from services.cost.core.pools import Row, of_tenant
from services.cost.core.prices import PriceBook
from services.cost.days import check_days
from services.cost.pools import report
from services.runtime.service import Platform

MAX_DAYS = 92


class Share(BaseModel):
    """What the tenant, all `others`, the platform or nobody (`idle`) had of a pool on a day (UTC).

    `kind`: productive, checkpointing, lost, starting; platform; idle.
    """

    day: date
    pool: str
    device_type: str
    kind: str
    tenant_id: str | None
    slot_seconds: float
    micro_usd: int


class PoolReport(BaseModel):
    """The shares of a pool's day add up to what its nodes offered."""

    shares: list[Share]


def pool_routes(platform: Platform, book: PriceBook) -> APIRouter:
    router = APIRouter()

    @router.get("/pools/{tenant_id}")
    async def shares_of_pools(tenant_id: TenantId, first: date, last: date) -> PoolReport:
        check_days(first, last, MAX_DAYS)
        async with platform.database.connection() as connection, store.one_moment(connection):
            now = await store.now(connection)
            found = await report(connection, book, first, last, now)
        return PoolReport(shares=[_share(row) for row in of_tenant(found, tenant_id)])

    return router


def _share(row: Row) -> Share:
    return Share(
        day=row.of.day,
        pool=row.of.pool,
        device_type=row.of.device_type,
        kind=row.kind,
        tenant_id=row.tenant_id or None,
        slot_seconds=row.slot_microseconds / 1_000_000,
        micro_usd=row.micro_usd,
    )
