"""Checkpoints of a job."""

from services.gateway.queries.rows import Connection, Row, as_row, as_rows


async def of_job(
    connection: Connection, job_id: str, limit: int, *, with_deleted: bool = True
) -> list[Row]:
    """Newest first by (fence, step); the latest and the best usable ones are marked."""
    rows = await connection.fetch(
        f"""
        with latest as (
            select fence, step from checkpoints where job_id = $1 and is_usable
            order by fence desc, step desc limit 1
        ), best as (
            select best_seq from checkpoints
            where job_id = $1 and best_seq is not null and is_usable
            order by best_seq desc limit 1
        )
        select *,
            is_usable and (fence, step) = (select fence, step from latest) as is_latest,
            is_usable and best_seq = (select best_seq from best) as is_best
        from checkpoints where job_id = $1{"" if with_deleted else " and deleted_seq < 0"}
        order by fence desc, step desc, checkpoint_id limit $2
        """,
        job_id,
        limit,
    )
    return as_rows(rows)


async def find(connection: Connection, tenant_id: str, checkpoint_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from checkpoints where tenant_id = $1 and checkpoint_id = $2",
            tenant_id,
            checkpoint_id,
        )
    )


async def best_value(connection: Connection, job_id: str, metric: str) -> tuple[float, int] | None:
    """The metric's value and the step of the checkpoint that was last found to be the best."""
    row = await connection.fetchrow(
        """
        select (metrics ->> $2)::double precision as value, step from checkpoints
        where job_id = $1 and best_seq is not null and jsonb_typeof(metrics -> $2) = 'number'
        order by best_seq desc limit 1
        """,
        job_id,
        metric,
    )
    return None if row is None else (row["value"], row["step"])


async def best_saved(connection: Connection, job_id: str, metric: str) -> Row | None:
    """The best checkpoint that can be used: its value of the metric, step and id."""
    return as_row(
        await connection.fetchrow(
            """
            select (metrics ->> $2)::double precision as value, step, checkpoint_id from checkpoints
            where job_id = $1 and best_seq is not null and is_usable
                and jsonb_typeof(metrics -> $2) = 'number'
            order by best_seq desc limit 1
            """,
            job_id,
            metric,
        )
    )
