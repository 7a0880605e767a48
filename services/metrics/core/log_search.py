"""Which lines of a chunk a reader wants: by rank, attempt, level, time of arrival and text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.metrics.core.log_levels import NONE, level_of


class Chunk(NamedTuple):
    """Lines of one rank that follow each other, at `first_position` of the job's lines and after.

    `at`: when they arrived, in seconds of the epoch. `lines` is None where they need not be read.
    """

    attempt: int
    rank: int
    first_position: int
    end_position: int
    first_line: int
    at: float
    lines: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """`level`: this or a higher one. `text` is found in any case; without it every line is wanted.

    `since` and `until`: of the arrival, in seconds of the epoch.
    """

    rank: int | None = None
    attempt: int | None = None
    level: int = NONE
    text: str = ""
    since: float | None = None
    until: float | None = None

    def indices(self, chunk: Chunk) -> Iterator[int]:
        """The lines that are wanted, in their order."""
        lines = chunk.lines
        if lines is None or not self._may_hold(chunk):
            return
        text = self.text.casefold()
        if text and text not in "\n".join(lines).casefold():
            return  # most chunks are told by this alone
        for index, line in enumerate(lines):
            if (not text or text in line.casefold()) and (
                self.level == NONE or level_of(line) >= self.level
            ):
                yield index

    def _may_hold(self, chunk: Chunk) -> bool:
        return (
            self.rank in (None, chunk.rank)
            and self.attempt in (None, chunk.attempt)
            and (self.since is None or chunk.at >= self.since)
            and (self.until is None or chunk.at < self.until)
        )
