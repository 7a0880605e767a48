"""Pages of a job's log: lines after a position, or the last ones before one.

What one request reads is bounded, in bytes and in time, whatever it searches for: it answers what
it has found so far and from where to where it has searched, and the next request continues there.
So it does where the object store is away: only a request that has no line yet fails.
"""

import time
from typing import Any

from services.metrics.core.log_levels import NONE, Level, level_of
from services.metrics.core.log_search import Chunk, Wanted
from services.metrics.logs.source import LogSource, Slice
from services.metrics.series.queries import LogsQuery
from services.runtime.errors import StoreError

# A page ends with the line that exceeds this.
MAX_PAGE_CHARACTERS = 2**20
MAX_SEARCHED_CHARACTERS = 8 * 2**20
# The gateway waits 2 s for the whole answer.
MAX_SEARCH_SECONDS = 0.8


async def page(source: LogSource, query: LogsQuery) -> dict[str, Any]:
    """Raises StoreError where not even the first line can be read."""
    return await (_last_lines if _is_backwards(query) else _lines_after)(source, query)


def _is_backwards(query: LogsQuery) -> bool:
    return query.after is None and query.tail is not None


class _Page:
    """Collects lines until there are `limit` or too many characters, or too much was searched."""

    def __init__(self, limit: int, wanted: Wanted) -> None:
        self._limit, self._wanted = limit, wanted
        self._num_characters = self._num_searched = 0
        self._until = time.monotonic() + MAX_SEARCH_SECONDS
        self.lines: list[dict[str, Any]] = []

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= self._limit or self._num_characters > MAX_PAGE_CHARACTERS

    @property
    def is_over(self) -> bool:
        return (
            self.is_full
            or self._num_searched > MAX_SEARCHED_CHARACTERS
            or time.monotonic() > self._until
        )

    def indices(self, chunk: Chunk) -> list[int]:
        self._num_searched += sum(map(len, chunk.lines or ()))
        return list(self._wanted.indices(chunk))

    def add(self, chunk: Chunk, index: int) -> None:
        assert chunk.lines is not None
        line = chunk.lines[index]
        level = level_of(line)
        self._num_characters += len(line)
        self.lines.append(
            {
                "position": chunk.first_position + index,
                "attempt": chunk.attempt,
                "rank": chunk.rank,
                "number": chunk.first_line + index,
                "line": line,
                "level": None if level == NONE else Level(level).word,
            }
        )


async def _lines_after(source: LogSource, query: LogsQuery) -> dict[str, Any]:
    page = _Page(query.limit, query.wanted)
    begin = position = query.after or 0
    found: Slice | None = None
    while True:
        try:
            found = await source.after(position)
        except StoreError:
            if found is None or not page.lines:
                raise
            return _answer(query, page, found, begin, position)
        for chunk in found.chunks:
            for index in page.indices(chunk):
                at = chunk.first_position + index
                if at < position:
                    continue
                page.add(chunk, index)
                if page.is_full:
                    return _answer(query, page, found, begin, at + 1)
            position = max(position, chunk.end_position)
            if page.is_over:
                return _answer(query, page, found, begin, position)
        if found.position is None:
            end = max(position, found.head.num_lines)
            return _answer(query, page, found, begin, end)
        position = max(position, found.position)


async def _last_lines(source: LogSource, query: LogsQuery) -> dict[str, Any]:
    page = _Page(query.tail or query.limit, query.wanted)
    end = position = query.before
    found: Slice | None = None
    while True:
        try:
            found = await source.before(position)
        except StoreError:
            if found is None or end is None or position is None or not page.lines:
                raise
            return _answer(query, page, found, position, end)
        if end is None or position is None:
            end = position = found.head.num_lines
        for chunk in found.chunks:
            for index in reversed(page.indices(chunk)):
                at = chunk.first_position + index
                if at >= position:
                    continue
                page.add(chunk, index)
                if page.is_full:
                    return _answer(query, page, found, at, end)
            position = min(position, chunk.first_position)
            if page.is_over:
                return _answer(query, page, found, position, end)
        if found.position is None:
            return _answer(query, page, found, 0, end)
        position = min(position, found.position)


def _answer(query: LogsQuery, page: _Page, found: Slice, begin: int, end: int) -> dict[str, Any]:
    """`begin` and `end`: all wanted lines from the one to before the other are in the page."""
    is_backwards = _is_backwards(query)
    return {
        "job_id": query.job_id,
        "lines": sorted(page.lines, key=lambda line: line["position"]),
        "searched_from": begin,
        "next": end,
        "is_complete": begin == 0 if is_backwards else end >= found.head.num_lines,
        **found.head._asdict(),
    }
