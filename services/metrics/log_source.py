"""The lines of one job, a slice at a time, forwards or backwards.

A connection is held for one slice only, so that a long search does not keep others waiting.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import asyncpg

from services.metrics import log_store
from services.metrics.core.log_search import Chunk
from services.metrics.log_store import Head
from services.metrics.queries import LogsQuery

Connect = Callable[[], AbstractAsyncContextManager[asyncpg.Connection]]


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

    def __init__(self, connect: Connect, query: LogsQuery) -> None:
        self._connect = connect
        self._job_id = query.job_id
        self._wanted = query.wanted

    async def after(self, position: int) -> Slice:
        async with self._connect() as connection:
            head = await log_store.head(connection, self._job_id)
            chunks = await log_store.chunks_after(connection, self._job_id, self._wanted, position)
        return Slice(chunks, chunks[-1].end_position if chunks else None, head)

    async def before(self, position: int | None) -> Slice:
        """None: from the end."""
        async with self._connect() as connection:
            head = await log_store.head(connection, self._job_id)
            chunks = await log_store.chunks_before(
                connection,
                self._job_id,
                self._wanted,
                head.num_lines if position is None else position,
            )
        return Slice(chunks, chunks[-1].first_position if chunks else None, head)
