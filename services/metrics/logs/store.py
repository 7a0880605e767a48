"""Every statement about lines of output; no rules."""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from services.metrics.core.log_search import Chunk, Wanted
from services.metrics.messages import MAX_COUNT

# Of one statement, whichever is reached first.
SLICE_CHUNKS = 512
SLICE_BYTES = 256 * 1024
# The chunks of $1 and of rank $2, each with whether it may hold wanted lines.
_CHUNKS = """
    select *, case when may_hold then size_bytes else 64 end as cost from (
        select attempt, rank, first_position, end_position, first_line, received_at, lines,
            size_bytes,
            ($3::integer is null or attempt = $3)
                and max_level >= $4
                and ($5::double precision is null or received_at >= to_timestamp($5))
                and ($6::double precision is null or received_at < to_timestamp($6)) as may_hold
        from log_chunks
        where job_id = $1 and ($2::integer is null or rank = $2) and end_position > first_position
    """
_COLUMNS = """
    attempt, rank, first_position, end_position, first_line,
    extract(epoch from received_at)::double precision, case when may_hold then lines end
    """


class LogChunk(NamedTuple):
    """Whole lines of one rank, at positions `first_position` to before `end_position` of the job's
    lines; the fields are the columns.
    """

    job_id: str
    run_id: str
    attempt: int
    rank: int
    session: str
    batch: int
    first_position: int
    end_position: int
    first_line: int
    lines: list[str]
    max_level: int
    size_bytes: int


class Head(NamedTuple):
    """How many lines a job has had, how many bytes were left out, and how many of the first lines
    were deleted since.
    """

    num_lines: int
    num_dropped_bytes: int
    num_deleted_lines: int


async def add_lines(
    connection: asyncpg.Connection, job_id: str, num_lines: int, num_dropped_bytes: int
) -> int:
    """The position of the first of `num_lines` further lines; locks the job's head."""
    end = await connection.fetchval(
        """
        insert into log_heads as head (job_id, num_lines, num_dropped_bytes) values ($1, $2, $3)
        on conflict (job_id) do update set
            num_lines = head.num_lines + excluded.num_lines,
            num_dropped_bytes = least(
                head.num_dropped_bytes::numeric + excluded.num_dropped_bytes, 9007199254740992
            )
        returning num_lines
        """,
        job_id,
        num_lines,
        min(num_dropped_bytes, MAX_COUNT),  # of many batches it may not fit into 64 bits
    )
    return int(end) - num_lines


async def insert_chunks(connection: asyncpg.Connection, chunks: Sequence[LogChunk]) -> None:
    await connection.copy_records_to_table("log_chunks", records=chunks, columns=LogChunk._fields)


async def num_hot_bytes(connection: asyncpg.Connection, job_id: str) -> int:
    """What the job has that is not in the object store yet."""
    found = await connection.fetchval("select num_bytes from log_hot where job_id = $1", job_id)
    return int(found or 0)


async def add_hot(
    connection: asyncpg.Connection, job_id: str, num_bytes: int, num_chunks: int
) -> None:
    await connection.execute(
        """
        insert into log_hot as hot (job_id, num_bytes, num_chunks, written_at)
        values ($1, $2, $3, clock_timestamp())
        on conflict (job_id) do update set
            num_bytes = hot.num_bytes + excluded.num_bytes,
            num_chunks = hot.num_chunks + excluded.num_chunks,
            written_at = excluded.written_at
        """,
        job_id,
        num_bytes,
        num_chunks,
    )


async def head(connection: asyncpg.Connection, job_id: str) -> Head:
    row = await connection.fetchrow(
        """
        select num_lines, num_dropped_bytes, num_deleted_lines from log_heads where job_id = $1
        """,
        job_id,
    )
    return Head(*row) if row else Head(0, 0, 0)


async def chunks_after(
    connection: asyncpg.Connection, job_id: str, wanted: Wanted, position: int
) -> list[Chunk]:
    """Some of the chunks with lines at `position` or after it, in their order; none: the end.

    Lines are read only of chunks that may hold wanted ones.
    """
    rows = await connection.fetch(
        f"""
        select {_COLUMNS} from (
            select *, sum(cost) over (order by end_position) as num_read
            from ({_CHUNKS} and end_position > $7 order by end_position limit $8) as one) as two
        ) as chunk
        where num_read - cost < $9 order by end_position
        """,
        *_filter(job_id, wanted),
        position,
        SLICE_CHUNKS,
        SLICE_BYTES,
    )
    return [Chunk(*row) for row in rows]


async def chunks_before(
    connection: asyncpg.Connection, job_id: str, wanted: Wanted, position: int
) -> list[Chunk]:
    """Some of the chunks that begin before `position`, the last first; none: the beginning.

    Where the chunk with the line before `position` ends is asked for first: Postgres plans with the
    number, and with less than that it sorts all chunks of the job.
    """
    end = await connection.fetchval(
        """
        select min(end_position) from log_chunks
        where job_id = $1 and ($2::integer is null or rank = $2) and end_position >= $3
        """,
        job_id,
        wanted.rank,
        position,
    )
    rows = await connection.fetch(
        f"""
        select {_COLUMNS} from (
            select *, sum(cost) over (order by end_position desc) as num_read
            from ({_CHUNKS} and end_position <= $7
                order by end_position desc limit $8) as one) as two
            where first_position < $9
        ) as chunk
        where num_read - cost < $10 order by end_position desc
        """,
        *_filter(job_id, wanted),
        position if end is None else end,
        SLICE_CHUNKS,
        position,
        SLICE_BYTES,
    )
    return [Chunk(*row) for row in rows]


def _filter(job_id: str, wanted: Wanted) -> tuple[object, ...]:
    return (job_id, wanted.rank, wanted.attempt, wanted.level, wanted.since, wanted.until)
