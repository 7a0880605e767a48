"""Studies and their trials."""

import json

from services.gateway.queries.rows import Connection, Position, Row, as_row, as_rows


async def page(
    connection: Connection, tenant_id: str, after: Position | None, limit: int
) -> list[Row]:
    """The tenant's studies, newest first, after a position; without their specs."""
    behind = "" if after is None else "and (listed_at, study_id) < ($3, $4)"
    rows = await connection.fetch(
        f"""
        select * from shown_studies where tenant_id = $1 {behind}
        order by listed_at desc, study_id desc limit $2
        """,
        tenant_id,
        limit,
        *(after or ()),
    )
    return as_rows(rows)


async def find(connection: Connection, tenant_id: str, study_id: str) -> Row | None:
    """The study with its spec; `accepted_spec` as for jobs."""
    row = as_row(
        await connection.fetchrow(
            """
            select shown_studies.*, spec, case when is_accepted then spec end as accepted_spec
            from shown_studies left join requests on subject_id = shown_studies.study_id
            where tenant_id = $1 and shown_studies.study_id = $2
            """,
            tenant_id,
            study_id,
        )
    )
    return row and {**row, "spec": row["spec"] and json.loads(row["spec"])}


async def trials(
    connection: Connection, study_id: str, limit: int, *, is_maximized: bool
) -> list[Row]:
    """The best first, then those without a value; each with the state and progress of its job."""
    rows = await connection.fetch(
        f"""
        select trials.*, shown_jobs.state as job_state, shown_jobs.step, shown_jobs.max_steps
        from (
            select * from trials where study_id = $1
            order by value {"desc" if is_maximized else "asc"} nulls last, number limit $2
        ) as trials left join shown_jobs on shown_jobs.job_id = trials.job_id
        order by value {"desc" if is_maximized else "asc"} nulls last, number
        """,
        study_id,
        limit,
    )
    return as_rows(rows)
