"""Studies and their trials."""

import json
from typing import Any

from services.gateway.queries.rows import Connection, Position, Row, as_row, as_rows

# The newest studies of a name; first, so that the others are not read.
_NAMED = """
    select subject_id from requests where sampler is not null and name = ${}
    order by asked_at desc limit 1000
"""


async def page(
    connection: Connection,
    tenant_id: str,
    after: Position | None,
    limit: int,
    *,
    state: str | None = None,
    name: str | None = None,
) -> list[Row]:
    """The tenant's studies, newest first, after a position; without their specs."""
    # Only the conditions that are given, so that each plan uses the index made for it.
    arguments: list[Any] = [tenant_id, limit]
    conditions = ""
    if state is not None:
        arguments.append(state)
        conditions += f" and state = ${len(arguments)}"
    if name is not None:
        arguments.append(name)
        conditions += f" and study_id = any(array({_NAMED.format(len(arguments))}))"
    if after is not None:
        arguments += after
        conditions += f" and (listed_at, study_id) < (${len(arguments) - 1}, ${len(arguments)})"
    rows = await connection.fetch(
        f"""
        select * from shown_studies where tenant_id = $1{conditions}
        order by listed_at desc, study_id desc limit $2
        """,
        *arguments,
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
