"""`python -m services.scheduler.shutdown`: record a stop request for every live run.

For an orderly stop of a whole platform, after the scheduler and before its pods: the reason for the
stop is then recorded, whatever stops the pods, and the runs return to the queue at the next start
without using a retry. A scheduler that is only restarted requests no stop.
"""

import asyncio

from services.runtime import logs
from services.runtime.database import Database
from services.runtime.settings import from_process
from services.runtime.transaction import Origin
from services.scheduler import store, store_runs, transitions
from services.scheduler.settings import SchedulerSettings

log = logs.get()

NAME = "scheduler"
REASON = "shutdown"


async def stop_live_runs(database: Database) -> int:
    """How many runs have a new stop request."""
    async with database.transaction() as tx:
        await store.lock(tx.connection)
        runs = await store_runs.live_runs(tx.connection)
        asked = [run for run in runs if run.stop_reason is None]
        for run in asked:
            await transitions.stop(tx, run, REASON)
    return len(asked)


async def main() -> None:
    settings = from_process(SchedulerSettings)
    logs.configure(NAME, settings.log_level)
    dsn = settings.postgres_dsn.get_secret_value()
    origin = Origin(f"/drivetrain/{NAME}", settings.topic_prefix)
    database = Database(dsn, NAME, origin, max_connections=1)
    await database.open(["services.scheduler"])
    try:
        log.info("stop requested for live runs", num_runs=await stop_live_runs(database))
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(main())
