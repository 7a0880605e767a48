"""What was charged, by job and in total."""

from services.gateway.queries.rows import Connection, Row, as_rows


async def by_job(connection: Connection, tenant_id: str, limit: int) -> list[Row]:
    """The jobs charged last."""
    rows = await connection.fetch(
        """
        select job_id, name, charged_micro_usd
        from job_spend left join requests on subject_id = job_id
        where tenant_id = $1 order by charged_until desc, job_id limit $2
        """,
        tenant_id,
        limit,
    )
    return as_rows(rows)


async def total(connection: Connection, tenant_id: str) -> tuple[int, int]:
    """The sum of all charges in micro-dollars, and the number of jobs that have any."""
    row = await connection.fetchrow(
        "select charged_micro_usd, num_charged_jobs from tenant_counts where tenant_id = $1",
        tenant_id,
    )
    return (0, 0) if row is None else (row["charged_micro_usd"], row["num_charged_jobs"])
