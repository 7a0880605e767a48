"""Printing a job's logs: the current ones, or all until the job has ended; all lines or some."""

import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from drivetrain.cli.errors import NotFound, Unreachable
from drivetrain.cli.output import Item, clean, write_note
from drivetrain.cli.session import segment
from drivetrain.cli.waiting import FINAL_JOB_STATES, GIVE_UP_SECONDS, POLL_SECONDS

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

PAGE_LINES = 1000
# A pod sends its last lines for a few seconds after its ranks have ended.
POLLS_AFTER_THE_END = 4


class _Printer:
    """Lines, prefixed with the rank if several ranks are shown."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._attempt: int | None = None

    def print(self, page: Item) -> None:
        for line in page["lines"]:
            if line["attempt"] != self._attempt:
                if self._attempt is not None:
                    write_note(f"--- attempt {line['attempt']} ---")
                self._attempt = line["attempt"]
            text = clean(line["line"])  # also into a file, which somebody will show
            print(text if self._rank is not None else f"{line['rank']}| {text}")
        sys.stdout.flush()


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines; None or empty: of all. The moments have a zone."""

    rank: int | None = None
    attempt: int | None = None
    level: str | None = None
    search: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def query(self, **more: Any) -> dict[str, Any]:
        fields = asdict(self) | {"search": self.search or None} | more
        for name in ("since", "until"):
            if (moment := fields[name]) is not None:
                fields[name] = moment.isoformat()
        return fields


def show_logs(gateway: "Gateway", job_id: str, wanted: Wanted, tail: int) -> None:
    """The last lines. Each request searches a bounded amount, so there may be several."""
    page = gateway.get(_path(job_id), wanted.query(tail=tail))
    lines = page["lines"]
    while len(lines) < tail and not page.get("is_complete", True):
        query = wanted.query(tail=tail - len(lines), before=page["searched_from"])
        page = gateway.get(_path(job_id), query)
        lines = page["lines"] + lines
    _Printer(wanted.rank).print({"lines": lines})
    if page.get("num_dropped_bytes"):
        write_note(f"{page['num_dropped_bytes']:,} bytes exceeded the log rate and were dropped")
    if page.get("num_deleted_lines"):
        write_note(f"the first {page['num_deleted_lines']:,} lines are no longer kept")


def follow_logs(gateway: "Gateway", job_id: str, wanted: Wanted, tail: int) -> None:
    """The last lines and all new ones, until the job has ended and nothing more arrives."""
    printer = _Printer(wanted.rank)
    page = gateway.get(_path(job_id), wanted.query(tail=tail))
    printer.print(page)
    after = page["next"]
    num_empty = 0
    silent_since: float | None = None
    while num_empty < POLLS_AFTER_THE_END:
        query = wanted.query(after=after, limit=PAGE_LINES)
        try:
            page = gateway.get(_path(job_id), query, tries=1)
            has_ended = _has_ended(gateway, job_id)
        except (Unreachable, NotFound):
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > GIVE_UP_SECONDS:
                raise
            time.sleep(POLL_SECONDS)
            continue
        silent_since = None
        printer.print(page)
        has_moved = page["next"] > after
        after = max(after, page["next"])
        num_empty = num_empty + 1 if has_ended and not has_moved else 0
        if not has_moved:
            time.sleep(POLL_SECONDS)


def _has_ended(gateway: "Gateway", job_id: str) -> bool:
    job = gateway.get(f"/v1/jobs/{segment(job_id)}", tries=1)
    return job["state"] in FINAL_JOB_STATES


def _path(job_id: str) -> str:
    return f"/v1/jobs/{segment(job_id)}/logs"
