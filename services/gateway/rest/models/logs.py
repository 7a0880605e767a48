"""Log lines of a job."""

from typing import Literal

from pydantic import BaseModel


class LogLine(BaseModel):
    """`level`: of lines in the usual shapes of logging libraries."""

    position: int
    attempt: int
    rank: int
    number: int
    line: str
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None


class LogPage(BaseModel):
    """All lines that were asked for from `searched_from` to before `next`.

    `next` is the `after` of the following page, `searched_from` the `before` of the earlier one;
    `is_complete`: there are no more in the direction of the request, up to now.
    `num_dropped_bytes` were written faster than the limit; `num_deleted_lines`: the first lines of
    a job with very many, or of long ago.
    """

    job_id: str
    lines: list[LogLine]
    searched_from: int = 0
    next: int
    is_complete: bool = False
    num_lines: int
    num_dropped_bytes: int
    num_deleted_lines: int = 0
