"""A task of the service: how many parked records wait for a decision, for Prometheus."""

from services.gateway import parked_queries
from services.gateway.instruments import PARKED_OPEN
from services.runtime.repeating import repeat
from services.runtime.service import Platform

LOOK_SECONDS = 15.0


async def count_parked(platform: Platform) -> None:
    async def count() -> None:
        async with platform.database.connection() as connection:
            PARKED_OPEN.set(await parked_queries.count_open(connection))

    await repeat(count, platform.clock, LOOK_SECONDS, "parked records not counted")
