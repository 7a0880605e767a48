"""What happened, in the order of commits (for the stream) or of time (for people)."""

from typing import Literal

from services.gateway.core.shared import SHARED_TYPES
from services.gateway.queries.rows import Connection, Moment, Row, as_rows

Subject = Literal["job_id", "study_id"]
_STREAMED = "cursor, type, event_id, tenant_id, job_id, study_id, node_id, occurred_at, payload"
# As in the predicate of the index made for it.
_NOTABLE = "and type not in ('checkpoint.committed', 'checkpoint.deleted')"


async def head(connection: Connection) -> tuple[str, int]:
    """The generation, and the last cursor that is committed."""
    row = await connection.fetchrow("select generation, last_cursor from stream")
    return ("", 0) if row is None else (row["generation"], row["last_cursor"])


async def of_all(connection: Connection, cursor: int, until: int, limit: int) -> list[Row]:
    """Rows of every tenant after `cursor` up to `until`, in the order of their commits."""
    rows = await connection.fetch(
        f"""
        select {_STREAMED} from timeline
        where cursor > $1 and cursor <= $2 order by cursor limit $3
        """,
        cursor,
        until,
        limit,
    )
    return as_rows(rows)


async def of_tenant(
    connection: Connection, tenant_id: str, cursor: int, until: int, limit: int
) -> list[Row]:
    """The same of one tenant, with what all of them see."""
    rows = await connection.fetch(
        f"""
        select {_STREAMED} from timeline
        where cursor > $1 and cursor <= $2 and (tenant_id = $4 or type = any($5))
        order by cursor limit $3
        """,
        cursor,
        until,
        limit,
        tenant_id,
        list(SHARED_TYPES),
    )
    return as_rows(rows)


async def of_job(
    connection: Connection, tenant_id: str, job_id: str, cursor: int, until: int, limit: int
) -> list[Row]:
    """The same of one job. Reads that job's events only, however old `cursor` is."""
    rows = await connection.fetch(
        f"""
        with of_job as materialized (
            select {_STREAMED} from timeline where job_id = $1 and tenant_id = $5
        )
        select * from of_job where cursor > $2 and cursor <= $3 order by cursor limit $4
        """,
        job_id,
        cursor,
        until,
        limit,
        tenant_id,
    )
    return as_rows(rows)


async def of_subject(
    connection: Connection, column: Subject, subject_id: str, after: Moment | None, limit: int
) -> list[Row]:
    """What happened to one job or study, oldest first, after a moment."""
    behind = "" if after is None else "and (occurred_at, seq, event_id) > ($3, $4, $5)"
    rows = await connection.fetch(
        f"""
        select cursor, type, event_id, job_id, study_id, node_id, occurred_at, seq, payload
        from timeline where {column} = $1 {behind}
        order by occurred_at, seq, event_id limit $2
        """,
        subject_id,
        limit,
        *(after or ()),
    )
    return as_rows(rows)


async def newest(
    connection: Connection,
    column: Subject,
    subject_id: str,
    limit: int,
    *,
    only_notable: bool = False,
) -> list[Row]:
    """The latest events of one job or study, newest first.

    `only_notable`: without the checkpoints that were saved and deleted, which may be thousands.
    """
    rows = await connection.fetch(
        f"""
        select cursor, type, event_id, occurred_at, seq, payload from timeline
        where {column} = $1 {_NOTABLE if only_notable else ""}
        order by occurred_at desc, seq desc, event_id desc limit $2
        """,
        subject_id,
        limit,
    )
    return as_rows(rows)
