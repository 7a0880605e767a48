"""Reads of the read model about studies and their trials: one function per statement."""

import asyncpg

from services.gateway.queries import Place, Row, as_row, as_rows

Connection = asyncpg.Connection


async def studies(
    connection: Connection, tenant_id: str, after: Place | None, limit: int
) -> list[Row]:
    rows = await connection.fetch(
        """
        select studies.*, counted.* from studies left join lateral (
            select count(*) as num_proposed,
                count(*) filter (where trials.state = 'completed') as num_completed,
                count(*) filter (where trials.state = 'failed') as num_failed
            from trials where trials.study_id = studies.study_id) as counted on true
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
            "select * from studies where tenant_id = $1 and study_id = $2", tenant_id, study_id
        )
    )


async def study_refusal(connection: Connection, study_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from rejections where subject_id = $1 order by seq desc limit 1", study_id
        )
    )


async def trials(connection: Connection, study_id: str, limit: int) -> list[Row]:
    """Each with the state and the progress of its job."""
    rows = await connection.fetch(
        """
        select trials.*, shown_jobs.shown_state as job_state, shown_jobs.step,
            shown_jobs.max_steps
        from trials left join shown_jobs on shown_jobs.job_id = trials.job_id
        where trials.study_id = $1 order by number limit $2
        """,
        study_id,
        limit,
    )
    return as_rows(rows)
