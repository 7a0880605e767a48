"""Stores every few seconds which pods were seen alive, so that it survives a restart.

The loop looks at pods several times a second and keeps that in memory; one statement here stores it
for all of them.
"""

from functools import partial

from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.scheduler import store_sightings
from services.scheduler.pods import Pods

SIGHTING_SECONDS = 3.0


class Sightings:
    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    async def run(self, platform: Platform) -> None:
        """A task of the service."""
        work = partial(self.store, platform)
        await repeat(work, platform.clock, SIGHTING_SECONDS, "sightings not stored")

    async def store(self, platform: Platform) -> None:
        ages = self._pods.seconds_since_alive()
        if ages:
            async with platform.database.transaction() as tx:
                await store_sightings.put(tx.connection, ages)
