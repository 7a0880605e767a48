"""What the page of a job tells about its attempts beside their events: where each resumed, and how
the last one failed.

In: rows of the timeline, newest first. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

NUM_LINES = 15


def resumed(rows: Sequence[Row]) -> list[dict[str, int]]:
    """The step at which each attempt resumed, in their order."""
    found = {
        row["payload"]["resumed_by_attempt"]: row["payload"]["step"]
        for row in reversed(rows)
        if row["type"] == "checkpoint.restored"
    }
    return [{"attempt": attempt, "step": step} for attempt, step in sorted(found.items())]


def last_log(rows: Sequence[Row]) -> str:
    """The last lines of the newest attempt that failed."""
    for row in rows:
        if row["type"] == "run.failed":
            text: str = row["payload"].get("last_log", "")
            return "\n".join(text.strip().splitlines()[-NUM_LINES:])
    return ""
