"""How the last attempt of a job failed, as its page shows it first.

In: rows of the timeline, newest first. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

NUM_LINES = 15


def last_log(rows: Sequence[Row]) -> str:
    """The last lines of the newest attempt that failed."""
    for row in rows:
        if row["type"] == "run.failed":
            text: str = row["payload"].get("last_log", "")
            return "\n".join(text.strip().splitlines()[-NUM_LINES:])
    return ""
