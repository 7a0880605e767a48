"""Routes about the slots over time: who had them, and what they were used for."""

from datetime import date, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.rest import models
from services.gateway.rest.days import Day
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1/cost", tags=["money"])

Step = Literal["hour", "day"]
By = Literal["use", "tenant", "project", "job"]
# How many days are shown without a first one, by step.
DAYS = {"hour": 2, "day": 30}


class FleetQuery(BaseModel):
    """The days (UTC) from `first` to `last`: at most 7 by hour, 92 by day."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    first: Day | None = None
    last: Day | None = None
    step: Step = "hour"
    by: By = "use"
    pool: Annotated[str | None, Field(min_length=1, max_length=63)] = None

    def days(self, today: date) -> tuple[date, date]:
        last = self.last or today
        return self.first or last - timedelta(days=DAYS[self.step] - 1), last


@router.get("/fleet", response_model=models.Fleet, responses=answers(422))
async def fleet(
    gateway: GatewayDep, caller: CallerDep, query: Annotated[FleetQuery, Query()]
) -> Any:
    """What the slots of each pool were used for, or which tenant, project or job had them: hour by
    hour (by default of the last two days), or day by day (of thirty).

    The eight holders with most have a series of their own. Hours are kept for 35 days.
    """
    return await read_fleet(gateway, caller.tenant_id, query)


async def read_fleet(gateway: Gateway, tenant_id: str, query: FleetQuery) -> Any:
    """The cost service's answer. Raises PartUnavailable or PartRefused."""
    first, last = query.days(gateway.platform.clock.now().date())
    parameters = {
        "first": first.isoformat(),
        "last": last.isoformat(),
        "step": query.step,
        "by": query.by,
        "pool": query.pool,
    }
    return await gateway.backends.get("cost", f"/fleet/{tenant_id}", parameters)
