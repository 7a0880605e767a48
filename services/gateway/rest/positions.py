"""Positions in a list, as the opaque text that `next` returns and `after` accepts."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Any

from services.gateway.problem import invalid


def position_text(*parts: Any) -> str:
    """A position in a list as an opaque text for `after`."""
    parts_as_text = [
        part.isoformat() if isinstance(part, datetime) else str(part) for part in parts
    ]
    return base64.urlsafe_b64encode("|".join(parts_as_text).encode()).decode().rstrip("=")


def read_value_position(text: str) -> tuple[float, str]:
    """The number and the id of a position in a list by value. Raises Problem if invalid."""
    try:
        value, subject_id = _parts(text, 2)
        number = float(value)
        if number != number:
            raise ValueError(value)
    except (ValueError, binascii.Error):
        raise invalid("after", "not a position in this list", "use `next` unchanged") from None
    return number, subject_id


def _parts(text: str, num_parts: int) -> list[str]:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    parts = raw.split("|", num_parts - 1)
    if len(parts) != num_parts or "\0" in raw:
        raise ValueError(raw)
    return parts


def read_position(text: str | None, num_parts: int) -> tuple[datetime, list[str]] | None:
    """The time and the other parts of a position. Raises Problem where it is invalid."""
    if text is None:
        return None
    try:
        moment, *others = _parts(text, num_parts)
        at = datetime.fromisoformat(moment)
        if at.tzinfo is None:
            raise ValueError(moment)
        return at.astimezone(UTC), others
    except (ValueError, OverflowError, binascii.Error):
        raise invalid("after", "not a position in this list", "use `next` unchanged") from None
