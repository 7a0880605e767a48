"""Bytes of unknown origin, shown so that people can judge them.

In: raw bytes of a record. Out: always base64, and the text where it is printable. Nothing is
interpreted, except to hide secrets; pages escape what they show.
"""

import base64
import json
from dataclasses import dataclass

from drivetrain_schemas import strict_json
from drivetrain_schemas.redaction import redacted

MAX_SHOWN_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """`text` is None where the bytes are not printable UTF-8; `is_cut` where only a part shows."""

    size_bytes: int
    base64: str
    text: str | None
    is_cut: bool


def show(raw: bytes | None, limit: int = MAX_SHOWN_BYTES) -> ShownBytes | None:
    """None stays None: a record without a value is not one with an empty value."""
    if raw is None:
        return None
    part = raw[:limit]
    return ShownBytes(
        size_bytes=len(raw),
        base64=base64.b64encode(part).decode(),
        text=_printable(part, is_cut=len(raw) > limit),
        is_cut=len(raw) > limit,
    )


def without_secrets(raw: bytes) -> bytes:
    """The same where nothing is secret; otherwise what people may see of it."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    try:
        document = strict_json.loads(raw)
    except strict_json.InvalidJson:
        document = text
    shown = redacted(document)
    if shown == document:
        return raw
    return (shown if isinstance(shown, str) else json.dumps(shown)).encode()


def _printable(raw: bytes, *, is_cut: bool) -> str | None:
    # A cut may fall inside a character of up to four bytes.
    for drop in range(4 if is_cut else 1):
        try:
            text = raw[: len(raw) - drop].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if all(c.isprintable() or c in "\n\r\t" for c in text) else None
    return None
