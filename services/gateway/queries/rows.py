"""What all reads use: rows as plain dictionaries, and positions in ordered lists."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

Connection = asyncpg.Connection
Row = dict[str, Any]

# A position in a list that is ordered by time and then by id, and one in a timeline.
Position = tuple[datetime, str]
Moment = tuple[datetime, int, str]


def as_rows(rows: Sequence[asyncpg.Record]) -> list[Row]:
    return [dict(row) for row in rows]


def as_row(row: asyncpg.Record | None) -> Row | None:
    return None if row is None else dict(row)
