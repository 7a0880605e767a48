"""Forwarding of the ranks' output to the platform: whole lines, numbered, at a bounded rate.

Pure: from bytes and the time to chunks of lines. What exceeds the rate is left out by whole
lines and counted, so a rank with much output cannot overload the platform. A progress bar is a line
every few seconds. The pod's file `log` has everything; of very much, the first and the last is kept
in `log`, `log.before` and `log.last`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from drivetrain.pod.progress_bars import Lines

BURST_BYTES = 512 * 1024
MAX_CHUNK_BYTES = 32 * 1024  # a control character is six bytes of JSON, so this fits any event
MAX_LINE_CHARACTERS = 8192
TAIL_BYTES = 8192
# What exceeds the rate is left out until there is room for so much: then lines follow each other,
# and a rank that writes a hundred megabytes per second is not held up by work on each line.
RESUME_BYTES = 32 * 1024


_MOVES_UP = re.compile(rb"\x1b\[\d*A")


class RateLimit:
    """A token bucket."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._level, self.at = burst, now

    def has_room(self, amount: float, now: float) -> bool:
        """For so much, or for half of all that there may be."""
        self._level = min(self._burst, self._level + (now - self.at) * self._rate)
        self.at = now
        return self._level >= min(amount, self._burst / 2)

    def take(self, amount: int, now: float) -> bool:
        self._level = min(self._burst, self._level + (now - self.at) * self._rate)
        self.at = now
        if amount > self._level:
            return False
        self._level -= amount
        return True


@dataclass(slots=True)
class Chunk:
    """Lines of one rank that follow each other."""

    rank: int
    first_line: int
    lines: list[str] = field(default_factory=list)
    size_bytes: int = 0
    num_dropped_bytes: int = 0


class RankLog:
    """One rank's output."""

    def __init__(self, rank: int, limit: RateLimit) -> None:
        self.rank = rank
        self.num_dropped_bytes = 0
        self._limit = limit
        self._lines = Lines()
        self._tail = b""
        self._num_lines = 0
        self._dropped_since = 0
        self._is_over = False  # more is written than may pass
        self._chunks: list[Chunk] = []

    @property
    def tail(self) -> bytes:
        """The end of the rank's own output."""
        return (self._tail + self._lines.pending())[-TAIL_BYTES:]

    def feed(self, data: bytes, now: float) -> None:
        if self._is_over and self._limit.has_room(RESUME_BYTES, now):
            self._is_over = False
        if self._is_over and self._lines.is_plain and not _paints(data):
            self._leave_out(data)
            return
        self._add_all(self._lines.feed(data, now), now)
        if len(self._lines.rest) >= MAX_LINE_CHARACTERS:
            self._add_all([self._lines.cut()], now)

    def say(self, line: bytes, now: float) -> None:
        """A line of the platform's own."""
        self._add(line, now)

    def take(self, now: float, is_last: bool = False) -> list[Chunk]:
        """The chunks gathered since the last call."""
        self._add_all(self._lines.last() if is_last else self._lines.due(now), now)
        if self._dropped_since:
            # The count must arrive although no more lines pass.
            self._chunk(0).num_dropped_bytes += self._dropped_since
            self._dropped_since = 0
        chunks, self._chunks = self._chunks, []
        return chunks

    def _add_all(self, lines: Iterable[bytes], now: float) -> None:
        passed = list(lines)
        for line in passed:
            self._add(line, now)
        if passed:
            self._tail = (self._tail + b"\n".join(passed) + b"\n")[-TAIL_BYTES:]

    def _leave_out(self, data: bytes) -> None:
        """All whole lines at once; what has no end yet is kept for the next."""
        text, end, rest = (self._lines.cut() + data).rpartition(b"\n")
        if not end and len(rest) >= MAX_LINE_CHARACTERS:  # an endless line
            text, rest = rest, b""
        self._lines.rest = rest
        if not (text or end):
            return
        size = len(text) + 1
        self._dropped_since += size
        self.num_dropped_bytes += size
        self._num_lines += text.count(b"\n") + 1
        self._tail = (self._tail + text[-TAIL_BYTES:] + b"\n")[-TAIL_BYTES:]

    def _add(self, line: bytes, now: float) -> None:
        for piece in _pieces(line):
            size = len(piece) + 1
            if self._limit.take(size, now):
                chunk = self._chunk(size)
                chunk.lines.append(piece.decode("utf-8", "replace"))
                chunk.size_bytes += size
                chunk.num_dropped_bytes += self._dropped_since
                self._dropped_since = 0
            else:
                self._is_over = True
                self._dropped_since += size
                self.num_dropped_bytes += size
            self._num_lines += 1

    def _chunk(self, size: int) -> Chunk:
        """The chunk for the next line: a new one after a gap, or when the last one is full."""
        last = self._chunks[-1] if self._chunks else None
        follows = last is not None and last.first_line + len(last.lines) == self._num_lines
        if last is None or not follows or last.size_bytes + size > MAX_CHUNK_BYTES:
            last = Chunk(self.rank, self._num_lines)
            self._chunks.append(last)
        return last


def _paints(data: bytes) -> bool:
    """Perhaps a progress bar, of which some lines are none."""
    return b"\r" in data or (b"\x1b[" in data and _MOVES_UP.search(data) is not None)


def _pieces(line: bytes) -> Iterator[bytes]:
    for start in range(0, max(len(line), 1), MAX_LINE_CHARACTERS):
        yield line[start : start + MAX_LINE_CHARACTERS]
