"""The read API of who had the slots over time, and what they were used for."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel

from drivetrain_schemas.ids import TenantId
from services.cost import store
from services.cost.core.fleet import By, Of, Series
from services.cost.core.phases import Amount
from services.cost.core.prices import PriceBook
from services.cost.core.steps import Step, days
from services.cost.days import check_days
from services.cost.fleet import Ask, fleet
from services.cost.retention import KEPT_HOURS
from services.runtime.service import Platform

MAX_DAYS = {Step.HOUR: 7, Step.DAY: 92}
# The last two days of the hours that are kept are not whole, or soon will not be.
HOURS_SINCE = KEPT_HOURS - timedelta(days=2)


class FleetSeries(BaseModel):
    """A value for each step; slots x microseconds, and micro-dollars.

    `kind`: by use, one of productive, checkpointing, starting, lost, platform, idle. Otherwise
    `held` by `holder` (None: jobs without a project), `others`, platform, idle.
    """

    pool: str
    device_type: str
    kind: str
    holder: str | None = None
    name: str | None = None
    slot_microseconds: list[int]
    micro_usd: list[int]


class Fleet(BaseModel):
    """`starts_at` is that of each step that has begun, also where nothing was offered.

    The series of a step add up to what the nodes offered, and hours of a day to the day.
    """

    step: Step
    starts_at: list[datetime]
    pools: list[str]
    series: list[FleetSeries]


def fleet_routes(platform: Platform, book: PriceBook) -> APIRouter:
    router = APIRouter()

    @router.get("/fleet/{tenant_id}")
    async def over_time(
        tenant_id: TenantId,
        first: date,
        last: date,
        step: Step,
        by: By,
        pool: Annotated[str | None, Query(max_length=63)] = None,
    ) -> Fleet:
        _check(first, last, step, platform.clock.now().date())
        steps = days(first, last, step)
        async with platform.database.connection() as connection, store.one_moment(connection):
            now = await store.now(connection)
            found = await fleet(connection, book, Ask(tenant_id, steps, by, pool), now)
        begins = steps.begins(now)
        return Fleet(
            step=step,
            starts_at=begins,
            pools=list(found.pools),
            series=[_series(*each, begins, found.names) for each in found.series],
        )

    return router


def _check(first: date, last: date, step: Step, today: date) -> None:
    check_days(first, last, MAX_DAYS[step], f"by {step}, ")
    since = today - HOURS_SINCE
    if step is Step.HOUR and first < since:
        raise HTTPException(422, f"first: hours are kept since {since}: write step=day")


def _series(
    of: Of, points: Series, begins: list[datetime], names: Mapping[str, str]
) -> FleetSeries:
    amounts = [points.get(begin, Amount()) for begin in begins]
    return FleetSeries(
        pool=of.pool,
        device_type=of.device_type,
        kind=of.kind,
        holder=of.holder or None,
        name=names.get(of.holder),
        slot_microseconds=[amount.slot_microseconds for amount in amounts],
        micro_usd=[amount.micro_usd for amount in amounts],
    )
