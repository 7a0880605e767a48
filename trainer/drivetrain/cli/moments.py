"""Moments as people give them: a time, or how long ago it was."""

import re
from datetime import UTC, datetime, timedelta

import typer

_AGO = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
METAVAR = "TIME"


def moment(text: str) -> datetime:
    """'10m' -> ten minutes ago; a time of ISO 8601 without a zone is of this machine's zone.

    Raises typer.BadParameter.
    """
    try:
        if ago := _AGO.fullmatch(text.strip()):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no time: give an age such as 30s, 10m, 2h or 7d,"
            " or a time such as 2026-11-22T10:00 or 2026-11-22T10:00Z"
        ) from None
