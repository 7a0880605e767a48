"""The page of costs: a month by day and owner, and the budgets."""

import asyncio
from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core import bars, cost_page
from services.gateway.pages.badges import badges
from services.gateway.pages.rendering import page
from services.gateway.rest.budgets import list_budgets
from services.gateway.rest.days import MONTH

router = APIRouter(include_in_schema=False)

LIMIT_SECONDS = 5.0


@router.get("/costs")
async def costs(
    request: Request,
    gateway: GatewayDep,
    caller: CallerDep,
    month: Annotated[str | None, Query(pattern=MONTH)] = None,
    by: Literal["project", "study", "tenant"] = "project",
) -> HTMLResponse:
    now = gateway.platform.clock.now()
    first = cost_page.month_of(month, now.date())
    last = cost_page.last_of(first)
    async with gateway.platform.database.connection() as connection:
        numbers = await badges(gateway, connection, caller)
    path = f"/chargeback/{caller.tenant_id}"
    query = {"first": first.isoformat(), "last": last.isoformat(), "by": by}
    found = await _costs(gateway, path, query, by)
    owners, num_others = cost_page.owners(found) if found else ([], 0)
    return page(
        request,
        "costs.html",
        costs=found,
        owners=owners,
        num_others=num_others,
        picture=cost_page.picture(found, first, last, now) if found else None,
        kinds=cost_page.KINDS,
        slot_kinds=cost_page.SLOT_KINDS,
        hours=bars.hours,
        budgets=(await list_budgets(gateway, caller)).budgets,
        month=first,
        before=first - timedelta(days=1),
        after=last + timedelta(days=1),
        by=by,
        **numbers,
    )


async def _costs(
    gateway: Gateway, path: str, query: dict[str, str], by: str
) -> cost_page.Costs | None:
    """None where the cost service does not answer."""
    found = cost_page.Costs()
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            async for line in gateway.backends.lines("cost", path, query):
                if line.get("is_complete"):
                    return found
                found.add(line, by)
    except (PartUnavailable, PartRefused, TimeoutError):
        pass
    return None
