"""Reads of the read model about studies and their trials: one function per statement."""

import asyncpg

from services.gateway.queries import Place, Row, as_row, as_rows

Connection = asyncpg.Connection


async def studies(
    connection: Connection, tenant_id: str, after: Place | None, limit: int
) -> list[Row]:
    """The tenant's studies, newest first, from behind a place."""
    rows = await connection.fetch(
        """
        select * from shown_studies
        where tenant_id = $1 and ($2::timestamptz is null or (listed_at, study_id) < ($2, $3))
        order by listed_at desc, study_id desc limit $4
        """,
        tenant_id,
        *(after or (None, None)),
        limit,
    )
    return as_rows(rows)


async def study(connection: Connection, tenant_id: str, study_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from shown_studies where tenant_id = $1 and study_id = $2",
            tenant_id,
            study_id,
        )
    )


async def trials(
    connection: Connection, study_id: str, limit: int, *, is_maximized: bool
) -> list[Row]:
    """The best first, then those without a value; each with the state and progress of its job."""
    rows = await connection.fetch(
        f"""
        select trials.*, shown_jobs.shown_state as job_state, shown_jobs.step,
            shown_jobs.max_steps
        from trials left join shown_jobs on shown_jobs.job_id = trials.job_id
        where trials.study_id = $1
        order by value {"desc" if is_maximized else "asc"} nulls last, number limit $2
        """,
        study_id,
        limit,
    )
    return as_rows(rows)
