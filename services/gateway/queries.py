"""Reads of the read model: one function per statement, rows out as plain dictionaries.

Those of studies are in `queries_studies`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import asyncpg

Connection = asyncpg.Connection
Row = dict[str, Any]

# A place in a list that is ordered by time and then by id, and one in a timeline.
Place = tuple[datetime, str]
Moment = tuple[datetime, int, str]


async def stream_head(connection: Connection) -> tuple[str, int]:
    """The generation, and the last cursor that is committed."""
    row = await connection.fetchrow("select generation, last_cursor from stream")
    return ("", 0) if row is None else (row["generation"], row["last_cursor"])


async def timeline_after(
    connection: Connection, cursor: int, until: int, job_id: str | None, limit: int
) -> list[Row]:
    """Rows behind `cursor` up to `until`, in the order of their commits."""
    rows = await connection.fetch(
        """
        select cursor, type, event_id, tenant_id, job_id, study_id, node_id, occurred_at, payload
        from timeline
        where cursor > $1 and cursor <= $2 and ($3::text is null or job_id = $3)
        order by cursor limit $4
        """,
        cursor,
        until,
        job_id,
        limit,
    )
    return as_rows(rows)


async def timeline_of(
    connection: Connection,
    column: Literal["job_id", "study_id"],
    subject_id: str,
    after: Moment | None,
    limit: int,
) -> list[Row]:
    """What happened to one job or study, oldest first, from behind a moment."""
    rows = await connection.fetch(
        f"""
        select cursor, type, event_id, job_id, study_id, node_id, occurred_at, seq, payload
        from timeline
        where {column} = $1
            and ($2::timestamptz is null or (occurred_at, seq, event_id) > ($2, $3, $4))
        order by occurred_at, seq, event_id limit $5
        """,
        subject_id,
        *(after or (None, None, None)),
        limit,
    )
    return as_rows(rows)


async def last_of_timeline(
    connection: Connection, column: Literal["job_id", "study_id"], subject_id: str, limit: int
) -> list[Row]:
    """The newest things that happened to one job or study, newest first."""
    rows = await connection.fetch(
        f"""
        select cursor, type, event_id, occurred_at, seq, payload from timeline
        where {column} = $1 order by occurred_at desc, seq desc, event_id desc limit $2
        """,
        subject_id,
        limit,
    )
    return as_rows(rows)


async def jobs(
    connection: Connection, tenant_id: str, state: str | None, after: Place | None, limit: int
) -> list[Row]:
    """The tenant's jobs, newest first, from behind a place."""
    rows = await connection.fetch(
        """
        select * from shown_jobs
        where tenant_id = $1 and ($2::text is null or shown_state = $2)
            and ($3::timestamptz is null or (listed_at, job_id) < ($3, $4))
        order by listed_at desc, job_id desc limit $5
        """,
        tenant_id,
        state,
        *(after or (None, None)),
        limit,
    )
    return as_rows(rows)


async def count_jobs(connection: Connection, tenant_id: str) -> dict[str, int]:
    """How many jobs are in each state."""
    rows = await connection.fetch(
        """
        select shown_state, count(*) as number from shown_jobs where tenant_id = $1
        group by shown_state
        """,
        tenant_id,
    )
    return {row["shown_state"]: row["number"] for row in rows}


async def job(connection: Connection, tenant_id: str, job_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            """
            select shown_jobs.*, jobs.accepted_spec from shown_jobs join jobs using (job_id)
            where shown_jobs.tenant_id = $1 and job_id = $2
            """,
            tenant_id,
            job_id,
        )
    )


async def live_progress(connection: Connection, limit: int) -> list[Row]:
    """The progress of every job that is not finished."""
    rows = await connection.fetch(
        """
        select job_id, attempt, phase, job_progress.step, job_progress.max_steps,
            job_progress.epoch, first_step, first_step_at, step_at, heard_at
        from job_progress join jobs using (job_id, attempt)
        where jobs.finished_at is null order by job_id limit $1
        """,
        limit,
    )
    return as_rows(rows)


async def runs_of_job(connection: Connection, job_id: str) -> list[Row]:
    rows = await connection.fetch("select * from runs where job_id = $1 order by attempt", job_id)
    return as_rows(rows)


async def checkpoints_of_job(connection: Connection, job_id: str, limit: int) -> list[Row]:
    """Newest first by (fence, step); the latest and the best usable ones are marked."""
    rows = await connection.fetch(
        """
        with marked as (
            select *, committed_at is not null and rejected_reason is null
                and deleted_at is null as is_usable
            from checkpoints where job_id = $1
        )
        select *,
            is_usable and (fence, step) = (
                select fence, step from marked where is_usable
                order by fence desc, step desc limit 1) as is_latest,
            is_usable and best_seq = (select max(best_seq) from marked where is_usable) as is_best
        from marked order by fence desc, step desc, checkpoint_id limit $2
        """,
        job_id,
        limit,
    )
    return as_rows(rows)


async def checkpoint(connection: Connection, tenant_id: str, checkpoint_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from checkpoints where tenant_id = $1 and checkpoint_id = $2",
            tenant_id,
            checkpoint_id,
        )
    )


async def best_of_checkpoints(
    connection: Connection, job_id: str, metric: str, *, is_maximized: bool
) -> tuple[float, int] | None:
    """The best value of the metric that a checkpoint carries, and its step."""
    row = await connection.fetchrow(
        f"""
        select (metrics ->> $2)::double precision as value, step from checkpoints
        where job_id = $1 and jsonb_typeof(metrics -> $2) = 'number'
        order by value {"desc" if is_maximized else "asc"}, step limit 1
        """,
        job_id,
        metric,
    )
    return None if row is None else (row["value"], row["step"])


async def alerts_of_job(connection: Connection, job_id: str) -> list[Row]:
    """Alerts that stand."""
    rows = await connection.fetch(
        """
        select * from alerts where job_id = $1 and cleared_at is null
        order by attempt desc, alert
        """,
        job_id,
    )
    return as_rows(rows)


async def rejection(connection: Connection, command_event_id: str, subject_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            "select * from rejections where command_event_id = $1 and subject_id = $2",
            command_event_id,
            subject_id,
        )
    )


async def nodes(connection: Connection) -> list[Row]:
    """Nodes that take runs, or still hold some."""
    rows = await connection.fetch(
        """
        select * from nodes where removed_at is null or exists (
            select from allocation_slots join allocations using (allocation_id)
            where allocation_slots.node_id = nodes.node_id and released_at is null)
        order by pool, node_id
        """
    )
    return as_rows(rows)


async def held_slots(connection: Connection) -> list[Row]:
    rows = await connection.fetch(
        """
        select node_id, slot, allocations.job_id, allocations.run_id, allocations.attempt,
            granted_at, jobs.name, jobs.state
        from allocations join allocation_slots using (allocation_id)
        left join jobs on jobs.job_id = allocations.job_id
        where released_at is null order by node_id, slot, granted_at
        """
    )
    return as_rows(rows)


async def device_type_of_pool(connection: Connection, pool: str) -> str | None:
    """The device type that most of the pool's slots are of."""
    found: str | None = await connection.fetchval(
        """
        select device_type from nodes where pool = $1 and removed_at is null
        group by device_type order by sum(num_slots) desc, device_type limit 1
        """,
        pool,
    )
    return found


async def charges_by_job(connection: Connection, tenant_id: str, limit: int) -> list[Row]:
    rows = await connection.fetch(
        """
        select charges.job_id, max(jobs.name) as name,
            sum(amount_micro_usd)::bigint as amount_micro_usd
        from charges left join jobs using (job_id)
        where charges.tenant_id = $1
        group by charges.job_id order by max(ends_at) desc, job_id limit $2
        """,
        tenant_id,
        limit,
    )
    return as_rows(rows)


async def charged(connection: Connection, tenant_id: str) -> tuple[int, int]:
    """The sum of all charges in micro-dollars, and the number of jobs that have any."""
    (row,) = await connection.fetch(
        """
        select coalesce(sum(amount_micro_usd), 0)::bigint as amount_micro_usd,
            count(distinct job_id) as num_jobs
        from charges where tenant_id = $1
        """,
        tenant_id,
    )
    return row["amount_micro_usd"], row["num_jobs"]


async def parked(connection: Connection, after: Place | None, limit: int) -> list[Row]:
    """Newest first, without the bytes."""
    rows = await connection.fetch(
        """
        select parked_id, service, topic, partition, "offset", reason, detail, parked_at,
            replays.replayed_at, coalesce(omitted_bytes, length(value), 0) as size_bytes
        from parked left join replays using (parked_id)
        where $1::timestamptz is null or (parked_at, parked_id) < ($1, $2)
        order by parked_at desc, parked_id desc limit $3
        """,
        *(after or (None, None)),
        limit,
    )
    return as_rows(rows)


async def parked_record(connection: Connection, parked_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            """
            select parked.*, replays.replayed_at from parked left join replays using (parked_id)
            where parked_id = $1
            """,
            parked_id,
        )
    )


async def count_parked(connection: Connection) -> int:
    """How many wait for a decision."""
    number: int = await connection.fetchval(
        "select count(*) from parked where not exists "
        "(select from replays where replays.parked_id = parked.parked_id)"
    )
    return number


async def insert_replay(connection: Connection, parked_id: str, at: datetime) -> None:
    await connection.execute(
        """
        insert into replays (parked_id, replayed_at) values ($1, $2)
        on conflict (parked_id) do update set replayed_at = excluded.replayed_at
        """,
        parked_id,
        at,
    )


async def insert_login_code(connection: Connection, code_sha256: str, expires_at: datetime) -> None:
    await connection.execute(
        "insert into login_codes (code_sha256, expires_at) values ($1, $2)", code_sha256, expires_at
    )


async def take_login_code(connection: Connection, code_sha256: str, now: datetime) -> bool:
    """True once: the code is there, and is gone with this."""
    taken = await connection.fetchval(
        "delete from login_codes where code_sha256 = $1 returning expires_at > $2",
        code_sha256,
        now,
    )
    return bool(taken)


async def forget_login_codes(connection: Connection, now: datetime) -> None:
    await connection.execute("delete from login_codes where expires_at <= $1", now)


def as_rows(rows: Sequence[asyncpg.Record]) -> list[Row]:
    return [dict(row) for row in rows]


def as_row(row: asyncpg.Record | None) -> Row | None:
    return None if row is None else dict(row)
