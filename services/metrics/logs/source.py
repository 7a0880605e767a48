"""The lines of one job, a slice at a time, forwards or backwards: first those in the object store,
then those in Postgres.

A connection is held for one slice only, and not while the object store is read, so that a long
search does not keep others waiting. Lines that are moved between two slices are found where they
are then, because a slice begins at a position.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import asyncpg

from services.metrics.core.log_search import Chunk
from services.metrics.logs import format as log_format
from services.metrics.logs import segment_store
from services.metrics.logs import store as log_store
from services.metrics.logs.segment_store import Segment
from services.metrics.logs.store import Head
from services.metrics.series.queries import LogsQuery
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject, ObjectStore

Connect = Callable[[], AbstractAsyncContextManager[asyncpg.Connection]]
# The gateway waits 2 s for the whole answer.
MAX_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Slice:
    """Chunks in the order of reading. `position`: where the next slice begins; None: it was the
    last one. `head`: as it was when the slice was read.
    """

    chunks: list[Chunk]
    position: int | None
    head: Head


class LogSource:
    """`connect` gives a connection in a transaction that sees one state of the tables."""

    def __init__(self, connect: Connect, store: ObjectStore, query: LogsQuery) -> None:
        self._connect = connect
        self._store = store
        self._job_id = query.job_id
        self._wanted = query.wanted

    async def after(self, position: int) -> Slice:
        """Raises StoreError."""
        job_id, wanted = self._job_id, self._wanted
        async with self._connect() as connection:
            head = await log_store.head(connection, job_id)
            segment = await segment_store.segment_after(connection, job_id, wanted, position)
            if segment is None:
                chunks = await log_store.chunks_after(connection, job_id, wanted, position)
                return Slice(chunks, chunks[-1].end_position if chunks else None, head)
        index = next(n for n, end in enumerate(segment.block_ends) if end > position)
        while index < len(segment.block_ends) - 1 and not self._may_hold(segment, index):
            index += 1
        chunks = await self._block(segment, index) if self._may_hold(segment, index) else []
        return Slice(chunks, segment.block_ends[index], head)

    async def before(self, position: int | None) -> Slice:
        """None: from the end. Raises StoreError."""
        job_id, wanted = self._job_id, self._wanted
        async with self._connect() as connection:
            head = await log_store.head(connection, job_id)
            end = head.num_lines if position is None else position
            chunks = await log_store.chunks_before(connection, job_id, wanted, end)
            if chunks:
                return Slice(chunks, chunks[-1].first_position, head)
            segment = await segment_store.segment_before(connection, job_id, wanted, end)
        if segment is None:
            return Slice([], None, head)
        begins = [segment.first_position, *segment.block_ends[:-1]]
        index = max(n for n, begin in enumerate(begins) if begin < end)
        while index > 0 and not self._may_hold(segment, index):
            index -= 1
        chunks = await self._block(segment, index) if self._may_hold(segment, index) else []
        return Slice(chunks[::-1], begins[index], head)

    def _may_hold(self, segment: Segment, index: int) -> bool:
        return segment.block_levels[index] >= self._wanted.level

    async def _block(self, segment: Segment, index: int) -> list[Chunk]:
        start = sum(segment.block_sizes[:index])
        end = start + segment.block_sizes[index]
        try:
            async with asyncio.timeout(MAX_SECONDS):
                packed = await self._store.get_range(segment.key, start, end)
        except TimeoutError:
            raise StoreError(f"the object store needs more than {MAX_SECONDS:g} s") from None
        except NoSuchObject:
            raise StoreError(f"the object store has lost {segment.key}") from None
        return await asyncio.to_thread(log_format.decode, packed, segment.block_bytes[index])
