"""Jobs with their runs, alerts and warnings, and how many there are."""

from collections.abc import Sequence

from services.gateway.core.alerts import LASTING
from services.gateway.queries.rows import Connection, Row, as_rows, with_spec


async def count(connection: Connection, tenant_id: str) -> dict[str, int]:
    """How many jobs are in each state."""
    counts: dict[str, int] | None = await connection.fetchval(
        "select jobs_by_state from tenant_counts where tenant_id = $1", tenant_id
    )
    return counts or {}


async def known(connection: Connection, tenant_id: str, job_ids: Sequence[str]) -> set[str]:
    """Those of the jobs that the tenant has."""
    rows = await connection.fetch(
        "select job_id from shown_jobs where tenant_id = $1 and job_id = any($2)",
        tenant_id,
        job_ids,
    )
    return {row["job_id"] for row in rows}


async def find(connection: Connection, tenant_id: str, job_id: str) -> Row | None:
    """The job with its spec; `accepted_spec` is the canonical text of one that was accepted."""
    return await with_spec(connection, "shown_jobs", "job_id", tenant_id, job_id)


async def runs(connection: Connection, job_id: str) -> list[Row]:
    rows = await connection.fetch("select * from runs where job_id = $1 order by attempt", job_id)
    return as_rows(rows)


async def alerts(connection: Connection, job_id: str) -> list[Row]:
    """Active alerts, and those that say what has happened and stays so."""
    rows = await connection.fetch(
        """
        select * from alerts where job_id = $1
            and (raised_seq > cleared_seq or raised_seq >= 0 and alert = any ($2))
        order by attempt desc, alert
        """,
        job_id,
        LASTING,
    )
    return as_rows(rows)


async def warnings(connection: Connection, job_id: str, limit: int) -> list[Row]:
    """Each warning once, as the newest attempt gave it; those of the newest attempts first."""
    rows = await connection.fetch(
        """
        select distinct on (said) * from (
            select *, case when warning = 'begins_with' then '' else detail end as said
            from warnings where job_id = $1 order by attempt desc limit $2
        ) as newest order by said, attempt desc
        """,
        job_id,
        limit,
    )
    found = as_rows(rows)
    return sorted(found, key=lambda row: (-row["attempt"], row["number"]))


async def live_progress(connection: Connection, limit: int) -> list[Row]:
    """The progress of every running job; that of a waiting one says nothing about its end."""
    rows = await connection.fetch(
        """
        select job_id, jobs.tenant_id, attempt, phase, job_progress.step, job_progress.max_steps,
            job_progress.epoch, first_step, first_step_at, step_at, heard_at
        from jobs join job_progress using (job_id, attempt)
        where finished_at is null and state = 'running' order by job_id limit $1
        """,
        limit,
    )
    return as_rows(rows)
