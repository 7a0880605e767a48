"""Every statement about lines in the object store; no rules."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import asyncpg

from drivetrain_schemas.runs import RunState
from services.metrics.core.log_search import Chunk, Wanted
from services.metrics.logs.format import Block, StoredChunk

MAX_CHUNKS_OF_SEGMENT = 20_000
_ENDED = ", ".join(f"'{state}'" for state in RunState if state.is_final)
_COLUMNS = "key, first_position, block_ends, block_sizes, block_bytes, block_levels"
_IN_TIME = """
    ($3::double precision is null or last_at >= to_timestamp($3))
    and ($4::double precision is null or first_at < to_timestamp($4))
    """


class Segment(NamedTuple):
    """`block_ends`: of each block, where its lines end."""

    key: str
    first_position: int
    block_ends: list[int]
    block_sizes: list[int]
    block_bytes: list[int]
    block_levels: list[int]


class ToDelete(NamedTuple):
    segment_id: int
    key: str


class Due(NamedTuple):
    """A job with lines to move. `overdue_seconds`: for how long they should have been."""

    job_id: str
    is_ended: bool
    overdue_seconds: float


async def due_jobs(
    connection: asyncpg.Connection, quiet: timedelta, max_bytes: int, limit: int
) -> list[Due]:
    """Jobs without a live run that have been quiet for so long, and those with too much."""
    rows = await connection.fetch(
        f"""
        select job_id, is_ended,
            case when is_ended
                then extract(epoch from now() - $1::interval - written_at) else 0
            end::double precision
        from (
            select *, written_at < statement_timestamp() - $1::interval and not exists (
                    select from runs where runs.job_id = log_hot.job_id
                        and (runs.state is null or runs.state not in ({_ENDED}))) as is_ended
            from log_hot) as job
        where is_ended or num_bytes >= $2 or num_chunks >= $3
        order by written_at limit $4
        """,
        quiet,
        max_bytes,
        MAX_CHUNKS_OF_SEGMENT,
        limit,
    )
    return [Due(*row) for row in rows]


async def oldest_chunks(
    connection: asyncpg.Connection, job_id: str, max_bytes: int
) -> list[StoredChunk]:
    """The first chunks of a job, until they hold so many bytes."""
    rows = await connection.fetch(
        """
        select attempt, rank, first_position, end_position, first_line,
            extract(epoch from received_at)::double precision, lines, max_level, size
        from (
            select *, sum(size) over (order by end_position, first_position) - size as num_before
            from (
                select *, size_bytes as size from log_chunks
                where job_id = $1 order by end_position, first_position limit $3) as oldest
        ) as chunk
        where num_before < $2 order by end_position, first_position
        """,
        job_id,
        max_bytes,
        MAX_CHUNKS_OF_SEGMENT,
    )
    return [StoredChunk(Chunk(*row[:7]), max_level=row[7], size_bytes=row[8]) for row in rows]


async def intend(
    connection: asyncpg.Connection, job_id: str, key: str, first_position: int, end_position: int
) -> int:
    """The number of a segment that is about to be written."""
    found = await connection.fetchval(
        """
        insert into log_segments (job_id, key, state, first_position, end_position)
        values ($1, $2, 'writing', $3, $4) returning id
        """,
        job_id,
        key,
        first_position,
        end_position,
    )
    return int(found)


async def lock_head(connection: asyncpg.Connection, job_id: str) -> None:
    """No further lines of the job are stored meanwhile."""
    await connection.execute("select from log_heads where job_id = $1 for update", job_id)


async def record(
    connection: asyncpg.Connection,
    segment_id: int,
    blocks: Sequence[Block],
    num_bytes: int,
    first_at: float,
    last_at: float,
) -> bool:
    """The segment is readable from now on. False where its intent is gone."""
    found = await connection.fetchval(
        """
        with stored as (
            update log_segments set state = 'stored', num_bytes = $2,
                first_at = to_timestamp($3), last_at = to_timestamp($4),
                block_ends = $5, block_sizes = $6, block_bytes = $7, block_levels = $8
            where id = $1 and state = 'writing' returning job_id),
        head as (
            update log_heads set num_cold_bytes = num_cold_bytes + $2
            where job_id in (select job_id from stored))
        select 1 from stored
        """,
        segment_id,
        num_bytes,
        first_at,
        last_at,
        *(list(column) for column in zip(*blocks, strict=True)),
    )
    return found is not None


async def delete_chunks(connection: asyncpg.Connection, job_id: str, end_position: int) -> int:
    """Those up to there, and what `log_hot` says of the rest. Returns how many had lines."""
    num_deleted = await connection.fetchval(
        """
        with deleted as (
            delete from log_chunks where job_id = $1 and end_position <= $2
            returning first_position, end_position)
        select count(*) from deleted where end_position > first_position
        """,
        job_id,
        end_position,
    )
    await connection.execute(
        """
        update log_hot set num_bytes = rest.num_bytes, num_chunks = rest.num_chunks from (
            select coalesce(sum(size_bytes), 0) as num_bytes,
                count(*) as num_chunks
            from log_chunks where job_id = $1) as rest
        where job_id = $1
        """,
        job_id,
    )
    await connection.execute("delete from log_hot where job_id = $1 and num_chunks = 0", job_id)
    return int(num_deleted)


async def forget_beyond(connection: asyncpg.Connection, job_id: str, max_bytes: int) -> int:
    """The job's oldest segments, those after which it has as much as that. Returns their lines."""
    return await _forget(
        connection,
        """
        select id from (
            select id, sum(num_bytes) over (order by end_position desc) - num_bytes as num_newer
            from log_segments where job_id = $1 and state = 'stored') as one
        where num_newer >= $2
        """,
        job_id,
        max_bytes,
    )


async def forget_old(connection: asyncpg.Connection, keep: timedelta, limit: int) -> int:
    """Segments of jobs without a live run whose last line arrived before that. Their lines.

    Of the job's last line, not the segment's: a job is without a run between two attempts too.
    """
    return await _forget(
        connection,
        f"""
        select id from log_segments
        where state = 'stored' and last_at < statement_timestamp() - $1::interval and not exists (
            select from runs where runs.job_id = log_segments.job_id
                and (runs.state is null or runs.state not in ({_ENDED})))
            and not exists (select from log_hot where log_hot.job_id = log_segments.job_id)
            and not exists (
                select from log_segments as newer where newer.job_id = log_segments.job_id
                    and newer.state = 'stored'
                    and newer.last_at >= statement_timestamp() - $1::interval)
        order by last_at limit $2
        """,
        keep,
        limit,
    )


async def _forget(connection: asyncpg.Connection, ids: str, *given: object) -> int:
    found = await connection.fetchval(
        f"""
        with old as (
            update log_segments set state = 'deleting' where id = any(array({ids}))
            returning job_id, end_position - first_position as num_lines, num_bytes),
        by_job as (
            select job_id, sum(num_lines) as num_lines, sum(num_bytes) as num_bytes
            from old group by job_id),
        heads as (
            update log_heads set num_cold_bytes = num_cold_bytes - by_job.num_bytes,
                num_deleted_lines = num_deleted_lines + by_job.num_lines
            from by_job where by_job.job_id = log_heads.job_id)
        select coalesce(sum(num_lines), 0) from old
        """,
        *given,
    )
    return int(found)


async def give_up_intents(connection: asyncpg.Connection) -> None:
    """What was being written is never recorded: only one process writes at a time."""
    await connection.execute("update log_segments set state = 'deleting' where state = 'writing'")


async def to_delete(connection: asyncpg.Connection, late: timedelta, limit: int) -> list[ToDelete]:
    """Those that were stored, and those that nobody writes any more: intended so long ago.

    Any of them, so that objects that cannot be deleted do not fill every pass.
    """
    rows = await connection.fetch(
        """
        select id, key from log_segments
        where state = 'deleting'
            and (last_at is not null or created_at < statement_timestamp() - $1::interval)
        order by random() limit $2
        """,
        late,
        limit,
    )
    return [ToDelete(*row) for row in rows]


async def remove(connection: asyncpg.Connection, segment_id: int) -> None:
    await connection.execute(
        "delete from log_segments where id = $1 and state = 'deleting'", segment_id
    )


async def segment_after(
    connection: asyncpg.Connection, job_id: str, wanted: Wanted, position: int
) -> Segment | None:
    """The first one with lines at `position` or after it."""
    which = "end_position > $2 order by end_position"
    return await _segment(connection, which, job_id, wanted, position)


async def segment_before(
    connection: asyncpg.Connection, job_id: str, wanted: Wanted, position: int
) -> Segment | None:
    """The last one that begins before `position`."""
    which = "first_position < $2 order by end_position desc"
    return await _segment(connection, which, job_id, wanted, position)


async def _segment(
    connection: asyncpg.Connection, which: str, job_id: str, wanted: Wanted, position: int
) -> Segment | None:
    row = await connection.fetchrow(
        f"""
        select {_COLUMNS} from log_segments
        where job_id = $1 and state = 'stored' and {_IN_TIME} and {which} limit 1
        """,
        job_id,
        position,
        wanted.since,
        wanted.until,
    )
    return None if row is None else Segment(*row)
