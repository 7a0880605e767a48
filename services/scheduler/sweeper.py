"""Removes pod directories of jobs that finished long enough ago: all but the last few.

The logs in them lie on the `logs` topic and in the metrics service as well; the newest directories
are kept for people who want to look at the files.
"""

from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform
from services.scheduler import store
from services.scheduler.launchers.base import Launcher

log = logs.get()

SWEEP_SECONDS = 60.0
BATCH = 50


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
        """Everything that may go, in batches; what cannot be removed is tried again next time."""
        num_removed = num_left = 0
        while True:
            async with platform.database.connection() as connection:
                skipped = self._num_kept + num_left
                job_ids = await store.jobs_to_tidy(connection, skipped, BATCH)
            if not job_ids:
                break
            for job_id in job_ids:
                if await self._remove(platform, job_id):
                    num_removed += 1
                else:
                    num_left += 1
        if num_removed:
            log.info("pod directories removed", num_jobs=num_removed)

    async def _remove(self, platform: Platform, job_id: str) -> bool:
        try:
            await self._launcher.remove(job_id)
        except OSError as error:
            log.warning("pod directories not removed", job_id=job_id, error=repr(error))
            return False
        async with platform.database.transaction() as tx:
            await store.set_tidied(tx.connection, job_id)
        return True
