"""Moves old samples to Parquet files in the object store, and deletes what is older than is kept.

A task of the service, in one replica at a time. A file goes intent -> write -> read back -> record,
and recording it deletes its chunks in the same transaction: a process that dies at any step leaves
the samples where they were, or where they are to be, never in neither and never in both. While the
object store is away nothing is deleted, and the next pass tries again.

What is left of a try is deleted by the next pass. What the store refuses to delete is logged
and tried again by each pass, and holds up nothing.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.metrics.cold import LATE, SERIES
from services.metrics.cold import format as cold_format
from services.metrics.cold import store as cold_store
from services.metrics.cold.store import File, OldChunk, SeriesChunk
from services.metrics.core import layout
from services.metrics.core.layout import Part, Piece, Samples
from services.metrics.instruments import (
    COLD_BYTES,
    COLD_DELETED,
    COLD_FAILURES,
    COLD_OVERDUE,
    COLD_SAMPLES,
)
from services.metrics.objects import alone, delete_objects, write
from services.metrics.settings import MetricsSettings
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import ObjectStore
from services.runtime.repeating import repeat
from services.runtime.service import Platform

log = logs.get()

LOOK_SECONDS = 60.0
# Of one file, about: 8 MB, of which a pass holds a few copies.
MAX_FILE_SAMPLES = 1_000_000
MAX_FILE_CHUNKS = 20_000
# Fewer samples wait for more, until the oldest has waited for this long.
MIN_FILE_SAMPLES = 250_000
MAX_WAIT = timedelta(hours=6)
# Of one pass, which deletes at its beginning.
MAX_FILES = 50
MAX_DELETES = 100


@dataclass(frozen=True, slots=True)
class Policy:
    """`after`: how old samples are moved; `keep`: how old ones are deleted, None: never."""

    after: timedelta
    keep: timedelta | None = None
    max_wait: timedelta = MAX_WAIT
    late: timedelta = LATE


def policy_of(settings: MetricsSettings) -> Policy:
    days = settings.keep_samples_days
    return Policy(
        timedelta(hours=settings.cold_after_hours), None if days is None else timedelta(days=days)
    )


async def tier(platform: Platform) -> None:
    """Until cancelled."""
    assert isinstance(platform.settings, MetricsSettings)
    tierer = Tierer(platform.database, platform.object_store, policy_of(platform.settings))
    waits = "old samples stay in Postgres for now"
    await repeat(tierer.run_alone, platform.clock, LOOK_SECONDS, waits, COLD_FAILURES)


class Tierer:
    def __init__(self, database: Database, store: ObjectStore, policy: Policy) -> None:
        self._database = database
        self._store = store
        self._policy = policy

    async def run_alone(self) -> None:
        """One pass, unless another process is in the middle of one."""
        if not await alone(self._database, "tiering", self.run):
            COLD_OVERDUE.set(0)  # the other process tells

    async def run(self) -> None:
        """One pass: what earlier tries left, files that are old enough, then samples, as far as one
        pass goes.
        """
        try:
            await self._delete()
            for _ in range(MAX_FILES):
                if not await self._move():
                    break
        finally:
            async with self._database.connection() as connection:
                overdue = await cold_store.overdue_seconds(connection, self._policy.after)
            COLD_OVERDUE.set(overdue)

    async def _delete(self) -> None:
        """Objects go first, then their rows; what was forgotten now is deleted by the next pass.

        So a request that still sees a file can read it.
        """

        async def forget(file_id: int) -> None:
            async with self._database.connection() as connection:
                await cold_store.forget_file(connection, file_id)

        async with self._database.connection() as connection:
            await cold_store.give_up_intents(connection)
            files = await cold_store.files_to_delete(connection, self._policy.late, MAX_DELETES)
        keys = {file.file_id: file.key for file in files}
        COLD_FAILURES.inc(await delete_objects(self._store, keys, forget))
        if self._policy.keep is None:
            return
        async with self._database.transaction() as tx:
            forgotten = await cold_store.forget_old_files(
                tx.connection, self._policy.keep, MAX_DELETES
            )
            tx.after_commit(lambda: COLD_DELETED.inc(forgotten))

    async def _move(self) -> bool:
        """Move the oldest samples into one file. False where too few are old enough."""
        async with self._database.connection() as connection:
            old = await cold_store.old_chunks(
                connection, self._policy.after, MAX_FILE_SAMPLES, MAX_FILE_CHUNKS
            )
            if not _is_due(old, self._policy):
                return False
            found = await cold_store.chunks(connection, [one.chunk_id for one in old])
            key = f"{SERIES}{datetime.now(UTC):%Y/%m/%d}/{secrets.token_hex(16)}.parquet"
            file_id = await cold_store.intend(connection, key)
        pieces, content = await asyncio.to_thread(_encoded, found)
        await write(self._store, key, content)
        file = File(
            file_id=file_id,
            size_bytes=len(content),
            footer_offset=cold_format.footer_offset(content),
            newest_at=max(one.received_at for one in old),
            newest_chunks={one.part: one.chunk_id for one in found},
        )
        return await self._record(key, file, pieces, [one.chunk_id for one in found])

    async def _record(
        self, key: str, file: File, pieces: Sequence[Piece], chunk_ids: Sequence[int]
    ) -> bool:
        """False where some chunks have changed since they were read: the next pass tries again."""
        parts = sorted({piece.part for piece in pieces})
        try:
            async with self._database.transaction() as tx:
                await cold_store.lock_series(tx.connection, parts)
                is_recorded = await cold_store.record(tx.connection, file, pieces)
                num_deleted = await cold_store.delete_chunks(tx.connection, chunk_ids)
                if not is_recorded or num_deleted != len(chunk_ids):
                    raise _Changed
                await cold_store.set_cold(tx.connection, parts, file.newest_at)
        except _Changed:
            log.info("chunks changed while they were moved", key=key)
            return False
        num_samples = sum(len(piece.samples.steps) for piece in pieces)
        COLD_SAMPLES.inc(num_samples)
        COLD_BYTES.inc(file.size_bytes)
        log.info(
            "samples moved to the object store",
            key=key,
            num_samples=num_samples,
            num_series=len(parts),
            size_bytes=file.size_bytes,
        )
        return True


class _Changed(Exception):
    """The transaction is to be rolled back."""


def _is_due(old: Sequence[OldChunk], policy: Policy) -> bool:
    if not old:
        return False
    num_samples = sum(one.num_samples for one in old)
    return num_samples >= MIN_FILE_SAMPLES or old[0].overdue >= policy.max_wait


def _encoded(found: Sequence[SeriesChunk]) -> tuple[list[Piece], bytes]:
    chunks: dict[Part, list[Samples]] = {}
    for one in found:
        chunks.setdefault(one.part, []).append(one.samples)
    pieces = layout.lay_out((part, layout.merge(of)) for part, of in chunks.items())
    return pieces, cold_format.encode(pieces)
