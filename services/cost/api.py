"""The read API of the cost service: live spend and estimates.

Only the gateway calls it. Spend = what is charged + what the open allocations would be charged now,
by the same code.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel

from drivetrain_schemas.ids import JobId, TenantId
from services.cost import store, store_budgets, store_offers, store_storage
from services.cost.core.budgets import Forecast, period_end, reached_percent
from services.cost.core.charges import Usage, total_micro_usd, unpriced_kinds
from services.cost.core.prices import PriceBook
from services.cost.fleet_api import fleet_routes
from services.cost.history_api import history_routes
from services.cost.pools_api import pool_routes
from services.cost.recommend_api import recommend_routes
from services.cost.report_api import report_routes
from services.cost.spent import as_budget, forecasts, spent
from services.cost.store_budgets import BudgetRow
from services.runtime.operations import ASGIApp
from services.runtime.service import Platform


class Unpriced(BaseModel):
    """Used slots of a kind that no price covers."""

    pool: str
    device_type: str


class Spend(BaseModel):
    """Micro-dollars: charged for what was released, accruing for what is held now.

    `platform_micro_usd` is the platform's own cost: slots that it still held after their pods had
    ended. Nobody is charged for it, and no other figure contains it. Slots listed in `unpriced`
    count as 0 because their price is not known, not because they are free. `storage_micro_usd` is
    what stored checkpoints were charged, up to the last whole day; it is in no other figure.
    """

    charged_micro_usd: int
    accruing_micro_usd: int
    total_micro_usd: int
    platform_micro_usd: int
    storage_micro_usd: int
    unpriced: tuple[Unpriced, ...]


class Estimate(BaseModel):
    """The cost of `devices` slots for `seconds` at the current price."""

    price_id: str
    price_micro_usd_per_slot_hour: int
    estimated_micro_usd: int


class BudgetState(BaseModel):
    """`used_up_at`: the likely moment, with the earliest and the latest (`core/budgets.py`); None:
    not in this period, or it is used up already. `reached_percent`: the highest level told in this
    period, 0 for none."""

    name: str
    reached_percent: int
    spent_micro_usd: int
    used_up_at: datetime | None
    used_up_earliest: datetime | None
    used_up_latest: datetime | None
    period_ends_at: datetime | None


class Budgets(BaseModel):
    budgets: tuple[BudgetState, ...]


def read_api(platform: Platform, book: PriceBook) -> ASGIApp:
    app = FastAPI(title="Drivetrain cost", docs_url=None, redoc_url=None)
    database = platform.database

    @app.get("/spend/jobs/{job_id}")
    async def spend_of_job(job_id: JobId) -> Spend:
        return await spend("job", job_id)

    @app.get("/spend/tenants/{tenant_id}")
    async def spend_of_tenant(tenant_id: TenantId) -> Spend:
        return await spend("tenant", tenant_id)

    async def spend(of: store.Of, subject_id: str) -> Spend:
        async with database.connection() as connection, store.one_moment(connection):
            charged = await store.charged_to(connection, of, subject_id)
            unpriced = await store.unpriced_of(connection, of, subject_id)
            usages = await store.open_usages_of(connection, of, subject_id)
            stored = await store_storage.charged_to(connection, of, subject_id)
        return _spend(charged, unpriced, usages, book, stored)

    @app.get("/budgets/{tenant_id}")
    async def budgets_of_tenant(tenant_id: TenantId) -> Budgets:
        async with database.connection() as connection, store.one_moment(connection):
            now = await store.now(connection)
            rows = await store_budgets.budgets(connection, tenant_id)
            held = await store_budgets.open_usages(connection, [tenant_id])
            amounts = await spent(connection, rows, held, book, now)
            expected = await forecasts(connection, rows, amounts, held, book, now)
        found = [
            _state(row, amount.micro_usd, forecast, now)
            for row, amount, forecast in zip(rows, amounts, expected, strict=True)
        ]
        return Budgets(budgets=tuple(found))

    app.include_router(pool_routes(platform, book))
    app.include_router(report_routes(platform, book))
    app.include_router(fleet_routes(platform, book))
    app.include_router(history_routes(platform, book))
    app.include_router(recommend_routes(platform, book))

    @app.get("/estimate")
    async def estimate(
        device_type: str,
        devices: Annotated[int, Query(ge=1, le=100_000)],
        seconds: Annotated[float, Query(gt=0, le=366 * 86_400)],
        pool: str = "default",
    ) -> Estimate:
        now = platform.clock.now()
        async with database.connection() as connection:
            kind = await store_offers.kind_offered(connection, pool, device_type)
        price = book.price_at(kind, now)
        if price is None:
            raise HTTPException(404, f"no price for device type {device_type!r} in pool {pool!r}")
        end = now + timedelta(seconds=seconds)
        usage = Usage("", pool, device_type, devices, now, end, end, kind.is_spot)
        return Estimate(
            price_id=price.price_id,
            price_micro_usd_per_slot_hour=price.micro_usd_per_slot_hour,
            estimated_micro_usd=total_micro_usd((usage,), book),
        )

    return app


def _state(row: BudgetRow, micro_usd: int, forecast: Forecast, now: datetime) -> BudgetState:
    budget = as_budget(row)
    return BudgetState(
        name=row.name,
        reached_percent=reached_percent(budget, now),
        spent_micro_usd=micro_usd,
        **asdict(forecast),
        period_ends_at=period_end(budget.period, now),
    )


def _spend(
    charged: store.Charged,
    unpriced: set[tuple[str, str]],
    usages: tuple[Usage, ...],
    book: PriceBook,
    storage_micro_usd: int,
) -> Spend:
    accruing = total_micro_usd(usages, book)
    kinds = sorted(unpriced | unpriced_kinds(usages, book))
    return Spend(
        charged_micro_usd=charged.charged_micro_usd,
        accruing_micro_usd=accruing,
        total_micro_usd=charged.charged_micro_usd + accruing,
        platform_micro_usd=charged.platform_micro_usd,
        storage_micro_usd=storage_micro_usd,
        unpriced=tuple(Unpriced(pool=pool, device_type=kind) for pool, kind in kinds),
    )
