"""Moves lines of ended jobs to the object store, and deletes those beyond what is kept.

A task of the service, in one replica at a time, as `tiering` does it for samples: intent -> write
-> read back -> record, and recording a segment deletes its chunks in the same transaction. While
the object store is away nothing is deleted.

A job that runs keeps its last lines in Postgres, and has its older ones moved when they are many.
What a job may have is bounded, so a job that floods its log pushes out its own first lines and
nobody else's.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from services.metrics.cold import LATE, LOGS
from services.metrics.instruments import (
    LOG_BYTES_MOVED,
    LOG_FAILURES,
    LOG_LINES_DELETED,
    LOG_OVERDUE,
)
from services.metrics.logs import format as log_format
from services.metrics.logs import segment_store
from services.metrics.logs.format import Block, StoredChunk
from services.metrics.logs.segment_store import Due
from services.metrics.objects import alone, delete_objects, write
from services.metrics.settings import MetricsSettings
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.errors import StoreError
from services.runtime.object_store import ObjectStore
from services.runtime.repeating import repeat
from services.runtime.service import Platform

log = logs.get()

LOOK_SECONDS = 20.0
# After the last line of a job without a live run: a pod may still send what it could not.
QUIET = timedelta(minutes=2)
SEGMENT_BYTES = 8 * 2**20
# A job that runs keeps as much in Postgres.
HOT_BYTES = 2 * SEGMENT_BYTES
MAX_JOBS = 200
# Of one pass, which deletes at its beginning.
MAX_ROUNDS = 20
MAX_DELETES = 100


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """`max_bytes`: of a job's lines; `keep`: how old ones are deleted, None: never."""

    max_bytes: int
    keep: timedelta | None = None
    quiet: timedelta = QUIET
    late: timedelta = LATE


def policy_of(settings: MetricsSettings) -> LogPolicy:
    days = settings.keep_logs_days
    keep = None if days is None else timedelta(days=days)
    return LogPolicy(settings.max_log_bytes_of_job, keep)


async def move_logs(platform: Platform) -> None:
    """Until cancelled."""
    assert isinstance(platform.settings, MetricsSettings)
    mover = LogMover(platform.database, platform.object_store, policy_of(platform.settings))
    waits = "lines stay in Postgres for now"
    await repeat(mover.run_alone, platform.clock, LOOK_SECONDS, waits, LOG_FAILURES)


class LogMover:
    def __init__(self, database: Database, store: ObjectStore, policy: LogPolicy) -> None:
        self._database = database
        self._store = store
        self._policy = policy

    async def run_alone(self) -> None:
        """One pass, unless another process is in the middle of one."""
        await alone(self._database, "logs", self.run)

    async def run(self) -> None:
        """One pass: what earlier tries left, what is too old, then a segment of each job in turn,
        until none has more to move, or for so many rounds.
        """
        due = await self._due()
        await self._delete()
        for _ in range(MAX_ROUNDS):
            if not due:
                return
            for job in due:
                await self._move(job.job_id)
            due = await self._due()

    async def _due(self) -> list[Due]:
        async with self._database.connection() as connection:
            due = await segment_store.due_jobs(connection, self._policy.quiet, HOT_BYTES, MAX_JOBS)
        LOG_OVERDUE.set(max((job.overdue_seconds for job in due), default=0.0))
        return due

    async def _delete(self) -> None:
        """Objects go first, then their rows; what was forgotten now is deleted by the next pass.

        So a request that still sees a segment can read it.
        """

        async def forget(segment_id: int) -> None:
            async with self._database.connection() as connection:
                await segment_store.remove(connection, segment_id)

        async with self._database.connection() as connection:
            await segment_store.give_up_intents(connection)
            segments = await segment_store.to_delete(connection, self._policy.late, MAX_DELETES)
        keys = {one.segment_id: one.key for one in segments}
        LOG_FAILURES.inc(await delete_objects(self._store, keys, forget))
        if self._policy.keep is not None:
            async with self._database.connection() as connection:
                num_lines = await segment_store.forget_old(
                    connection, self._policy.keep, MAX_DELETES
                )
            LOG_LINES_DELETED.labels("age").inc(num_lines)

    async def _move(self, job_id: str) -> None:
        """Move the oldest lines of a job into one segment."""
        async with self._database.connection() as connection:
            found = await segment_store.oldest_chunks(connection, job_id, SEGMENT_BYTES)
        chunks = [one for one in found if one.chunk.lines]
        if not chunks:  # only the counts of what was left out, which the head has
            end = found[-1].chunk.end_position if found else 0
            async with self._database.transaction() as tx:
                await segment_store.lock_head(tx.connection, job_id)
                await segment_store.delete_chunks(tx.connection, job_id, end)
            return
        async with self._database.connection() as connection:
            first, end = chunks[0].chunk.first_position, chunks[-1].chunk.end_position
            key = f"{LOGS}{job_id}/{first}-{end}-{secrets.token_hex(8)}.zst"
            segment_id = await segment_store.intend(connection, job_id, key, first, end)
        content, blocks = await asyncio.to_thread(log_format.encode, chunks)
        await write(self._store, key, content)
        await self._record(job_id, segment_id, chunks, blocks)
        LOG_BYTES_MOVED.inc(len(content))
        log.info("lines moved to the object store", key=key, size_bytes=len(content))

    async def _record(
        self, job_id: str, segment_id: int, chunks: Sequence[StoredChunk], blocks: Sequence[Block]
    ) -> None:
        num_bytes = sum(one.size_bytes for one in chunks)
        times = [one.chunk.at for one in chunks]
        async with self._database.transaction() as tx:
            await segment_store.lock_head(tx.connection, job_id)
            is_recorded = await segment_store.record(
                tx.connection, segment_id, blocks, num_bytes, min(times), max(times)
            )
            if not is_recorded:
                raise StoreError(f"segment {segment_id} was given up while it was written")
            num_deleted = await segment_store.delete_chunks(
                tx.connection, job_id, chunks[-1].chunk.end_position
            )
            if num_deleted != len(chunks):
                raise StoreError(f"the lines of {job_id} were moved by another process meanwhile")
            num_lines = await segment_store.forget_beyond(
                tx.connection, job_id, self._policy.max_bytes
            )
            tx.after_commit(lambda: LOG_LINES_DELETED.labels("size").inc(num_lines))
