"""A task of the service: how many parked records wait for a decision, for Prometheus."""

from services.gateway import parked_queries
from services.gateway.instruments import PARKED_OPEN
from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform

log = logs.get()

LOOK_SECONDS = 15.0


async def count_parked(platform: Platform) -> None:
    while True:
        try:
            async with platform.database.connection() as connection:
                PARKED_OPEN.set(await parked_queries.count_open(connection))
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning("parked records not counted", error=repr(error))
        await platform.clock.sleep(LOOK_SECONDS)
