"""Deletes the media of jobs that ended long ago, where the operator has set for how long to keep.

A task of the service, in one replica at a time: intent -> act -> record. The intent deletes a job's
rows, the next pass its objects, so that a request that still sees a row can read it; killed between
two of them, the next pass goes on. A job goes as a whole, after its end: attempts share what they
logged alike (the objects are named by their content), and an ended job has no further attempt.
While the object store is away nothing is recorded as deleted.
"""

from datetime import timedelta
from typing import NamedTuple

import asyncpg

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.media import media_directory
from services.metrics.instruments import MEDIA_DELETED, MEDIA_FAILURES
from services.metrics.objects import alone, delete_objects
from services.metrics.settings import MetricsSettings
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import ObjectStore
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

LOOK_SECONDS = 60.0
MAX_JOBS = 100


class JobToDelete(NamedTuple):
    job_id: str
    tenant_id: str


async def delete_media(platform: Platform) -> None:
    """Until cancelled."""
    assert isinstance(platform.settings, MetricsSettings)
    days = platform.settings.keep_media_days
    keep = None if days is None else timedelta(days=days)
    deleter = MediaDeleter(platform.database, platform.object_store, keep)
    waits = "old media stay in the object store for now"
    await repeat(deleter.run_alone, platform.clock, LOOK_SECONDS, waits, MEDIA_FAILURES)


class MediaDeleter:
    """`keep`: after the end of a job; None: for ever."""

    def __init__(self, database: Database, store: ObjectStore, keep: timedelta | None) -> None:
        self._database = database
        self._store = store
        self._keep = keep

    async def run_alone(self) -> None:
        """One pass, unless another process is in the middle of one."""
        await alone(self._database, "media", self.run)

    async def run(self) -> None:
        """One pass: what was intended before, then what is old enough now."""
        async with self._database.connection() as connection:
            intended = await to_delete(connection, MAX_JOBS)
        for job in intended:
            MEDIA_FAILURES.inc(await self._delete(job))
        if self._keep is None:
            return
        async with self._database.transaction() as tx:
            num_items = await intend(tx.connection, self._keep, MAX_JOBS)
            tx.after_commit(lambda: MEDIA_DELETED.inc(num_items))

    async def _delete(self, job: JobToDelete) -> int:
        """Returns how many objects could not be deleted; the job is tried again then."""
        found = await self._store.list(media_directory(job.tenant_id, job.job_id) + "/")
        keys = dict(enumerate(one.key for one in found))
        if num_failed := await delete_objects(self._store, keys):
            return num_failed
        async with self._database.connection() as connection:
            await record(connection, job.job_id)
        log.info("media deleted", job_id=job.job_id, num_objects=len(found))
        return 0


async def on_job_ended(tx: Tx, event: Event[Payload], job_id: str) -> None:
    """From now on the job's media age. The tenant is the one of the scheduler."""
    await tx.connection.execute(
        """
        insert into media_heads as head (job_id, tenant_id, ended_at)
        values ($1, $2, clock_timestamp())
        on conflict (job_id) do update set tenant_id = excluded.tenant_id,
            ended_at = coalesce(head.ended_at, excluded.ended_at)
        """,
        job_id,
        event.tenant_id,
    )


async def to_delete(connection: asyncpg.Connection, limit: int) -> list[JobToDelete]:
    """Jobs whose rows are gone and whose objects may not be.

    Any of them, so that those whose objects cannot be deleted do not fill every pass.
    """
    rows = await connection.fetch(
        """
        select job_id, tenant_id from media_heads
        where deleting_at is not null and deleted_at is null
        order by random() limit $1
        """,
        limit,
    )
    return [JobToDelete(*row) for row in rows]


async def intend(connection: asyncpg.Connection, keep: timedelta, limit: int) -> int:
    """Delete the rows of jobs that ended, and wrote last, before that. Returns how many."""
    status = await connection.execute(
        """
        with old as (
            update media_heads set deleting_at = clock_timestamp()
            where job_id = any(array(
                select job_id from media_heads
                where ended_at < statement_timestamp() - $1::interval and deleted_at is null
                    and deleting_at is null and num_items > 0
                    and written_at < statement_timestamp() - $1::interval
                order by ended_at limit $2))
                and deleting_at is null and written_at < statement_timestamp() - $1::interval
            returning job_id)
        delete from media using old where media.job_id = old.job_id
        """,
        keep,
        limit,
    )
    return int(status.split()[-1])


async def record(connection: asyncpg.Connection, job_id: str) -> None:
    await connection.execute(
        "update media_heads set deleted_at = clock_timestamp() where job_id = $1", job_id
    )
