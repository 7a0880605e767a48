"""Every statement of the metrics service, one function each; no rules."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Literal, NamedTuple

import asyncpg

from services.metrics.core.alerts import Pace
from services.metrics.core.series import Chunk
from services.metrics.messages import BatchKey

Stream = Literal["samples", "logs"]
# Of one kind; names of series are the program's, and an alert is kept for ever.
MAX_ALERTS_OF_RUN = 100
LOG_PREFETCH = 8  # chunks of logs that one round trip brings; each may have 256 KiB


class ChunkRow(NamedTuple):
    """The samples of one series in one batch; the fields are the columns."""

    job_id: str
    run_id: str
    attempt: int
    rank: int
    series: str
    num_samples: int
    min_step: int
    max_step: int
    steps: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """What batches add to one series of one run."""

    run_id: str
    rank: int
    name: str
    job_id: str
    attempt: int
    num_samples: int
    last_step: int
    last_value: float


@dataclass(frozen=True, slots=True)
class Range:
    """The range to read of a series of a job: of all attempts where none is named."""

    job_id: str
    rank: int
    name: str
    from_step: int
    to_step: int
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class SeriesOfJob:
    """One series over all runs of a job; last step and value are those of the latest run."""

    name: str
    num_samples: int
    last_step: int
    last_value: float


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


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as this service knows it."""

    run_id: str
    job_id: str
    tenant_id: str
    attempt: int
    state: str | None
    progress: Pace | None


async def insert_batches(
    connection: asyncpg.Connection, stream: Stream, keys: Iterable[BatchKey]
) -> set[BatchKey]:
    """Store the batches' keys; returns those that are new."""
    ordered = sorted(set(keys))
    rows = await connection.fetch(
        """
        insert into batches (run_id, rank, session, batch, stream)
        select run_id, rank, session, batch, $5
        from unnest($1::text[], $2::integer[], $3::text[], $4::bigint[])
            as given (run_id, rank, session, batch)
        on conflict do nothing
        returning run_id, rank, session, batch
        """,
        [key.run_id for key in ordered],
        [key.rank for key in ordered],
        [key.session for key in ordered],
        [key.batch for key in ordered],
        stream,
    )
    return {BatchKey(*row) for row in rows}


async def insert_chunks(connection: asyncpg.Connection, chunks: Sequence[ChunkRow]) -> None:
    await connection.copy_records_to_table("chunks", records=chunks, columns=ChunkRow._fields)


async def add_to_series(connection: asyncpg.Connection, rows: Sequence[SeriesRow]) -> None:
    """Each (run, rank, name) occurs once in `rows`."""
    ordered = sorted(rows, key=lambda row: (row.run_id, row.rank, row.name))
    await connection.execute(
        """
        insert into series as old
            (run_id, rank, name, job_id, attempt, num_samples, last_step, last_value)
        select * from unnest(
            $1::text[], $2::integer[], $3::text[], $4::text[], $5::integer[], $6::bigint[],
            $7::bigint[], $8::double precision[]
        )
        on conflict (run_id, rank, name) do update set
            num_samples = old.num_samples + excluded.num_samples,
            last_value = case
                when excluded.last_step >= old.last_step then excluded.last_value
                else old.last_value
            end,
            last_step = greatest(old.last_step, excluded.last_step)
        """,
        [row.run_id for row in ordered],
        [row.rank for row in ordered],
        [row.name for row in ordered],
        [row.job_id for row in ordered],
        [row.attempt for row in ordered],
        [row.num_samples for row in ordered],
        [row.last_step for row in ordered],
        [row.last_value for row in ordered],
    )


async def series_of_job(
    connection: asyncpg.Connection, job_id: str, rank: int, attempt: int | None = None
) -> list[SeriesOfJob]:
    rows = await connection.fetch(
        """
        select name, sum(num_samples)::bigint as num_samples,
            (array_agg(last_step order by attempt desc))[1] as last_step,
            (array_agg(last_value order by attempt desc))[1] as last_value
        from series where job_id = $1 and rank = $2 and ($3::integer is null or attempt = $3)
        group by name order by name
        """,
        job_id,
        rank,
        attempt,
    )
    return [SeriesOfJob(**dict(row)) for row in rows]


async def first_readable_step(
    connection: asyncpg.Connection, wanted: Range, max_samples: int
) -> int:
    """The step from which on the range holds at most about `max_samples`, read from its end."""
    found = await connection.fetchval(
        """
        select coalesce(max(max_step) + 1, $4) from (
            select max_step, sum(num_samples) over (order by max_step desc, id desc) as num_read
            from chunks
            where job_id = $1 and rank = $2 and series = $3 and max_step >= $4 and min_step <= $5
                and ($6::integer is null or attempt = $6)
        ) as chunk
        where num_read > $7
        """,
        *astuple(wanted),
        max_samples,
    )
    return int(found)


async def chunks_of_series(connection: asyncpg.Connection, wanted: Range) -> list[Chunk]:
    """The chunks that overlap the range, in the order they arrived."""
    rows = await connection.fetch(
        """
        select attempt, steps, values from chunks
        where job_id = $1 and rank = $2 and series = $3 and max_step >= $4 and min_step <= $5
            and ($6::integer is null or attempt = $6)
        order by id
        """,
        *astuple(wanted),
    )
    return [Chunk(*row) for row in rows]


async def add_log_lines(
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
        num_dropped_bytes,
    )
    return int(end) - num_lines


async def insert_log_chunks(connection: asyncpg.Connection, chunks: Sequence[LogChunk]) -> None:
    await connection.copy_records_to_table("log_chunks", records=chunks, columns=LogChunk._fields)


async def log_head(connection: asyncpg.Connection, job_id: str) -> tuple[int, int]:
    """How many lines the job has, and how many bytes were left out."""
    row = await connection.fetchrow(
        "select num_lines, num_dropped_bytes from log_heads where job_id = $1", job_id
    )
    return (row["num_lines"], row["num_dropped_bytes"]) if row else (0, 0)


async def log_chunks_after(
    connection: asyncpg.Connection, job_id: str, rank: int | None, position: int
) -> AsyncGenerator[LogChunk, None]:
    """Chunks with lines at `position` or after it, in order, read lazily."""
    query = """
        select job_id, run_id, attempt, rank, session, batch, first_position, end_position,
            first_line, lines
        from log_chunks
        where job_id = $1 and ($2::integer is null or rank = $2) and end_position > $3
        order by end_position
        """
    async with connection.transaction(readonly=True):
        async for row in connection.cursor(query, job_id, rank, position, prefetch=LOG_PREFETCH):
            yield LogChunk(*row)


async def log_chunks_backwards(
    connection: asyncpg.Connection, job_id: str, rank: int | None
) -> AsyncGenerator[LogChunk, None]:
    """Chunks that have lines, the last first, read lazily."""
    query = """
        select job_id, run_id, attempt, rank, session, batch, first_position, end_position,
            first_line, lines
        from log_chunks
        where job_id = $1 and ($2::integer is null or rank = $2) and end_position > first_position
        order by end_position desc
        """
    async with connection.transaction(readonly=True):
        async for row in connection.cursor(query, job_id, rank, prefetch=LOG_PREFETCH):
            yield LogChunk(*row)


async def lock_run(
    connection: asyncpg.Connection, run_id: str, job_id: str, tenant_id: str, attempt: int
) -> RunRow:
    """The run's row, made where it is missing."""
    await connection.execute(
        """
        insert into runs (run_id, job_id, tenant_id, attempt) values ($1, $2, $3, $4)
        on conflict do nothing
        """,
        run_id,
        job_id,
        tenant_id,
        attempt,
    )
    row = await connection.fetchrow("select * from runs where run_id = $1 for update", run_id)
    assert row is not None
    progress = None
    if row["heard_at"] is not None:
        progress = Pace(
            heard_at=row["heard_at"],
            step=row["step"],
            moved_at=row["moved_at"],
            still_seconds=row["still_seconds"],
            step_seconds=tuple(row["step_seconds"]),
        )
    return RunRow(run_id, row["job_id"], row["tenant_id"], row["attempt"], row["state"], progress)


async def set_state(
    connection: asyncpg.Connection, run_id: str, state: str, tenant_id: str
) -> None:
    await connection.execute(
        "update runs set state = $2, tenant_id = $3 where run_id = $1", run_id, state, tenant_id
    )


async def set_progress(connection: asyncpg.Connection, run_id: str, progress: Pace) -> None:
    await connection.execute(
        """
        update runs set heard_at = $2, step = $3, moved_at = $4, still_seconds = $5,
            step_seconds = $6
        where run_id = $1
        """,
        run_id,
        progress.heard_at,
        progress.step,
        progress.moved_at,
        progress.still_seconds,
        list(progress.step_seconds),
    )


async def now(connection: asyncpg.Connection) -> float:
    """The service's clock, in seconds: that of Postgres, which all replicas share."""
    return float(await connection.fetchval("select extract(epoch from clock_timestamp())"))


async def raise_alert(
    connection: asyncpg.Connection, run_id: str, alert: str, series: str = "", *, again: bool
) -> bool:
    """True where the alert was not raised before, or (`again`) was cleared since.

    False also where the run has too many of its kind.
    """
    row = await connection.fetchval(
        """
        insert into alerts as old (run_id, alert, series)
            select $1, $2, $3
            where (select count(*) from alerts where run_id = $1 and alert = $2) < $5
        on conflict (run_id, alert, series) do update
            set raised_at = excluded.raised_at, cleared_at = null
            where $4 and old.cleared_at is not null
        returning 1
        """,
        run_id,
        alert,
        series,
        again,
        MAX_ALERTS_OF_RUN,
    )
    return row is not None


async def clear_alert(connection: asyncpg.Connection, run_id: str, alert: str) -> bool:
    """True where the alert about the run was active."""
    row = await connection.fetchval(
        """
        update alerts set cleared_at = clock_timestamp()
        where run_id = $1 and alert = $2 and series = '' and cleared_at is null
        returning 1
        """,
        run_id,
        alert,
    )
    return row is not None
