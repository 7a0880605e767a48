"""What all reads use: rows as plain dictionaries, and positions in ordered lists."""

import json
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


async def with_spec(
    connection: Connection, view: str, key: str, tenant_id: str, subject_id: str
) -> Row | None:
    """A job or a study with the spec that was requested, and its text if it was accepted."""
    found = await connection.fetchrow(
        f"""
        select {view}.*, spec, case when is_accepted then spec end as accepted_spec
        from {view} left join requests on subject_id = {view}.{key}
        where tenant_id = $1 and {view}.{key} = $2
        """,
        tenant_id,
        subject_id,
    )
    row = as_row(found)
    return row and {**row, "spec": row["spec"] and json.loads(row["spec"])}
