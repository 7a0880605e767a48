"""Log lines of a job."""

from pydantic import BaseModel


class LogLine(BaseModel):
    position: int
    attempt: int
    rank: int
    number: int
    line: str


class LogPage(BaseModel):
    """`next` is the `after` of the following page."""

    job_id: str
    lines: list[LogLine]
    next: int
    num_lines: int
    num_dropped_bytes: int
