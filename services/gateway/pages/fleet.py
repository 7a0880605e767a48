"""The page of slots over time: what they were used for, and who had them, by hour or day."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core import bars, fleet_page
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page
from services.gateway.rest import models
from services.gateway.rest.days import Day
from services.gateway.rest.fleet import By, FleetQuery, Step, read_fleet

router = APIRouter(include_in_schema=False)

ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Chart:
    by: By
    fleet: models.Fleet
    lines: Sequence[bars.Line]
    picture: bars.Picture


@router.get("/fleet")
async def fleet(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    first: Day | None = None,
    last: Day | None = None,
    step: Step = "hour",
    by: Literal["project", "job", "tenant"] = "project",
    pool: Annotated[str | None, Query(min_length=1, max_length=63)] = None,
) -> HTMLResponse:
    query = FleetQuery(first=first, last=last, step=step, by=by, pool=pool)
    today = gateway.platform.clock.now().date()
    begin, end = query.days(today)
    length = end - begin + ONE_DAY
    async with gateway.platform.database.connection() as connection:
        numbers = await badges(gateway, connection, caller)
    charts: Sequence[Chart] = ()
    problem = ""
    try:
        charts = await asyncio.gather(
            _chart(gateway, caller.tenant_id, query.model_copy(update={"by": "use"})),
            _chart(gateway, caller.tenant_id, query),
        )
    except PartUnavailable as error:
        why = f"cannot answer: {error.why}" if error.why else "does not answer"
        problem = f"The cost service {why}."
    except PartRefused as error:
        problem = error.detail
    return page(
        request,
        "fleet.html",
        charts=charts,
        problem=problem,
        query=query,
        first=begin,
        last=end,
        num_days=length.days,
        earlier=(begin - length, begin - ONE_DAY),
        later=(end + ONE_DAY, end + length),
        back=lambda num_days: end - (num_days - 1) * ONE_DAY,
        today=today,
        ranges=fleet_page.RANGES,
        has_hours=fleet_page.has_hours,
        time_text=bars.time_text,
        hours=bars.hours,
        **numbers,
    )


async def _chart(gateway: Gateway, tenant_id: str, query: FleetQuery) -> Chart:
    found = models.Fleet.model_validate(await read_fleet(gateway, tenant_id, query))
    lines = fleet_page.lines([each.model_dump() for each in found.series], query.by)
    now = gateway.platform.clock.now()
    picture = bars.picture(found.starts_at, lines, query.step, now)
    return Chart(query.by, found, lines, picture)
