"""Removes pod directories of jobs that finished long enough ago: all but the last few.

The logs in them lie on the `logs` topic and in the metrics service as well; the newest directories
are kept for whoever wants to look at the files.
"""

from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform
from services.scheduler import store
from services.scheduler.launchers.base import Launcher

log = logs.get()

SWEEP_SECONDS = 60.0
MAX_PER_SWEEP = 20


class Sweeper:
    def __init__(self, launcher: Launcher, num_kept: int) -> None:
        self._launcher = launcher
        self._num_kept = num_kept

    async def run(self, platform: Platform) -> None:
        """A task of the service."""
        while True:
            try:
                await self.sweep(platform)
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning("sweep put off", error=repr(error))
            await platform.clock.sleep(SWEEP_SECONDS)

    async def sweep(self, platform: Platform) -> None:
        async with platform.database.connection() as connection:
            job_ids = await store.jobs_to_tidy(connection, self._num_kept, MAX_PER_SWEEP)
        for job_id in job_ids:
            await self._launcher.remove(job_id)
            async with platform.database.transaction() as tx:
                await store.set_tidied(tx.connection, job_id)
        if job_ids:
            log.info("pod directories removed", num_jobs=len(job_ids))
