"""What jobs like one that is to be submitted took, and what that costs today."""

from collections.abc import Iterator
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from drivetrain_schemas.ids import TenantId
from services.cost import store_offers, store_spend
from services.cost.core.charges import cost_of
from services.cost.core.history import taken
from services.cost.core.prices import PriceBook
from services.runtime.service import Platform

Basis = Literal["name", "command", "project"]

MAX_JOBS = 100  # the latest of them


class History(BaseModel):
    """Of the latest `num_jobs` that succeeded with the same name, command or project (`basis`).

    `low` to `high` is the range of eight in ten; of few jobs, the extremes. Amounts are at today's
    price, None where there is none. Without such jobs, `num_jobs` is 0.
    """

    num_jobs: int
    basis: Basis | None = None
    low_device_seconds: float | None = None
    median_device_seconds: float | None = None
    high_device_seconds: float | None = None
    low_micro_usd: int | None = None
    median_micro_usd: int | None = None
    high_micro_usd: int | None = None


class Job(BaseModel):
    """What is known of the job; a command may be too long for an address."""

    name: str
    command: list[str]
    project: str | None
    pool: str
    device_type: str


def history_routes(platform: Platform, book: PriceBook) -> APIRouter:
    router = APIRouter()

    @router.post("/history/{tenant_id}")
    async def history(tenant_id: TenantId, job: Job) -> History:
        async with platform.database.connection() as connection:
            for basis, value in _bases(job):
                times = await store_spend.times_of(connection, tenant_id, basis, value, MAX_JOBS)
                found = taken(times)
                if found is not None:
                    break
            else:
                return History(num_jobs=0)
            kind = await store_offers.kind_offered(connection, job.pool, job.device_type)
        price = book.price_at(kind, platform.clock.now())
        known: dict[str, float] = {}
        for part in ("low", "median", "high"):
            time = getattr(found, part)
            known[f"{part}_device_seconds"] = time / 1_000_000
            if price:
                known[f"{part}_micro_usd"] = cost_of(time, price.micro_usd_per_slot_hour)
        return History.model_validate({"num_jobs": found.num_jobs, "basis": basis, **known})

    return router


def _bases(job: Job) -> Iterator[tuple[Basis, str | None]]:
    """The most alike first."""
    yield "name", job.name
    yield "command", store_spend.digest_of(job.command)
    yield "project", job.project
