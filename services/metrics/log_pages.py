"""Pages of a job's log: its last lines, or those after a position."""

from contextlib import aclosing
from typing import Any

import asyncpg

from services.metrics import store
from services.metrics.queries import LogsQuery
from services.metrics.store import LogChunk

# A page ends with the line that exceeds this.
MAX_PAGE_CHARACTERS = 2**20


async def page(connection: asyncpg.Connection, query: LogsQuery) -> dict[str, Any]:
    num_lines, num_dropped_bytes = await store.log_head(connection, query.job_id)
    if query.tail is not None and query.after is None:
        lines = await _last_lines(connection, query, query.tail)
    else:
        lines = await _lines_after(connection, query, query.after or 0)
    return {
        "job_id": query.job_id,
        "lines": lines,
        "next": lines[-1]["position"] + 1 if lines else max(query.after or 0, 0),
        "num_lines": num_lines,
        "num_dropped_bytes": num_dropped_bytes,
    }


class _Page:
    """Collects lines until there are `limit` or too many characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._num_characters = 0
        self.lines: list[dict[str, Any]] = []

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= self._limit or self._num_characters > MAX_PAGE_CHARACTERS

    def add(self, chunk: LogChunk, index: int) -> None:
        line = chunk.lines[index]
        self._num_characters += len(line)
        self.lines.append(
            {
                "position": chunk.first_position + index,
                "attempt": chunk.attempt,
                "rank": chunk.rank,
                "number": chunk.first_line + index,
                "line": line,
            }
        )


async def _lines_after(
    connection: asyncpg.Connection, query: LogsQuery, position: int
) -> list[dict[str, Any]]:
    page = _Page(query.limit)
    chunks = store.log_chunks_after(connection, query.job_id, query.rank, position)
    async with aclosing(chunks):
        async for chunk in chunks:
            for index in range(max(0, position - chunk.first_position), len(chunk.lines)):
                page.add(chunk, index)
                if page.is_full:
                    return page.lines
    return page.lines


async def _last_lines(
    connection: asyncpg.Connection, query: LogsQuery, limit: int
) -> list[dict[str, Any]]:
    page = _Page(limit)
    chunks = store.log_chunks_backwards(connection, query.job_id, query.rank)
    async with aclosing(chunks):
        async for chunk in chunks:
            for index in reversed(range(len(chunk.lines))):
                page.add(chunk, index)
                if page.is_full:
                    return page.lines[::-1]
    return page.lines[::-1]
