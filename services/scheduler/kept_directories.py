"""Removes pod directories of finished jobs, oldest first: beyond a number of jobs or of bytes,
or a share of what the disk has free.

The logs in them are on the `logs` topic and in the metrics service as well; the newest directories
are kept for inspection.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from services.runtime import logs
from services.runtime.disk import read_disk
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.scheduler import instruments, store
from services.scheduler.launchers.base import Launcher, LauncherUnavailable

log = logs.get()

PERIOD_SECONDS = 60.0
BATCH = 50
# Of what would be free without them.
SHARE_OF_FREE = 0.25


class KeptDirectories:
    def __init__(
        self, launcher: Launcher, *, max_jobs: int, max_bytes: int, on: Path | None = None
    ) -> None:
        """`on`: a directory of the disk that they are on, where it is one of this machine."""
        self._launcher = launcher
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._on = on
        # Nothing writes into a finished job's directories, so each is measured once.
        self._sizes: dict[str, int] = {}

    async def run(self, platform: Platform) -> None:
        """A task of the service."""
        work = partial(self.remove_old, platform)
        await repeat(work, platform.clock, PERIOD_SECONDS, "pod directories not checked")

    async def remove_old(self, platform: Platform) -> None:
        """Everything beyond the bounds, in batches; what fails is tried again next time."""
        num_kept = await self._num_kept(platform)
        num_removed = num_failed = 0
        while True:
            async with platform.database.connection() as connection:
                job_ids = await store.jobs_to_tidy(connection, num_kept + num_failed, BATCH)
            if not job_ids:
                break
            for job_id in job_ids:
                if await self._remove(platform, job_id):
                    num_removed += 1
                else:
                    num_failed += 1
        if num_removed:
            log.info("pod directories removed", num_jobs=num_removed)

    async def _num_kept(self, platform: Platform) -> int:
        """How many of the jobs that finished last fit into both bounds.

        One that alone is beyond them is removed, not all that finished before it.
        """
        async with platform.database.connection() as connection:
            newest = await store.jobs_to_tidy(connection, 0, self._max_jobs)
        self._sizes = {job: size for job, size in self._sizes.items() if job in newest}
        for job_id in newest:
            if job_id not in self._sizes:
                self._sizes[job_id] = await self._launcher.size_bytes(job_id)
        limit = float(self._max_bytes)
        if self._on is not None and self._on.is_dir():
            unused = read_disk(self._on).free_bytes + sum(self._sizes.values())
            limit = min(limit, SHARE_OF_FREE * unused)
        newest = [
            job_id
            for job_id in newest
            if self._sizes[job_id] <= limit or not await self._remove(platform, job_id)
        ]
        num_kept = count_fitting([self._sizes[job_id] for job_id in newest], limit)
        instruments.KEPT_BYTES.set(sum(self._sizes[job_id] for job_id in newest[:num_kept]))
        return num_kept

    async def _remove(self, platform: Platform, job_id: str) -> bool:
        try:
            await self._launcher.remove(job_id)
        except (LauncherUnavailable, OSError) as error:
            log.warning("pod directories not removed", job_id=job_id, error=repr(error))
            return False
        async with platform.database.transaction() as tx:
            await store.set_tidied(tx.connection, job_id)
        return True


def count_fitting(sizes: Sequence[int], limit: float) -> int:
    """How many, from the first on, sum up to at most `limit`."""
    return sum(total <= limit for total in itertools.accumulate(sizes))
