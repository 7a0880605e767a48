"""Deletes rows that nothing reads any more, in bounded steps.

Runs, their pods and their allocations go 30 days after the run's end: their events say all of it.
Jobs stay for ever, for a request is known again by its job. Heartbeats and sightings end with their
run; a row that was written at the same time as that end is deleted here.
"""

from functools import partial

from services.runtime import logs
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.scheduler import instruments, store_retention

log = logs.get()

PERIOD_SECONDS = 600.0
KEPT_DAYS = 30
BATCH = 500


async def run(platform: Platform) -> None:
    """A task of the service."""
    await repeat(partial(prune, platform), platform.clock, PERIOD_SECONDS, "old rows not deleted")


async def prune(platform: Platform) -> None:
    async with platform.database.transaction() as tx:
        num_left = await store_retention.delete_leftovers(tx.connection)
    instruments.PRUNED_ROWS.labels("sightings and heartbeats").inc(num_left)
    while True:
        async with platform.database.transaction() as tx:
            num_runs = await store_retention.delete_runs(tx.connection, KEPT_DAYS, BATCH)
        instruments.PRUNED_ROWS.labels("runs").inc(num_runs)
        if num_runs < BATCH:
            return
        log.info("rows of old runs deleted", num_runs=num_runs)
