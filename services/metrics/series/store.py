"""Every statement that reads the series of a job, one function each; no rules.

All series of a request are read by one statement each time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from drivetrain_schemas import system_series
from services.metrics.cold.reading import ColdChunk
from services.metrics.core.series import Chunk
from services.metrics.series.queries import SeriesQuery


@dataclass(frozen=True, slots=True)
class SeriesOfJob:
    """One series over all runs of a job; last step and value are those of the latest run."""

    name: str
    num_samples: int
    first_step: int
    last_step: int
    last_value: float


@dataclass(frozen=True, slots=True)
class SystemValue:
    """The last value of one system series of a rank."""

    rank: int
    name: str
    last_step: int
    last_value: float


@dataclass(frozen=True, slots=True)
class Extent:
    """The samples of one series of one run; `base_width` is that of its levels, if it has any."""

    name: str
    run_id: str
    attempt: int
    num_samples: int
    first_step: int
    last_step: int
    base_width: int | None


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """A chunk without its samples: in Postgres, or `cold`, in the object store."""

    chunk_id: int
    num_samples: int
    max_step: int
    cold: ColdChunk | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """What to read: series of one rank of a job, of all attempts where none is named."""

    job_id: str
    rank: int
    names: tuple[str, ...]
    from_step: int
    to_step: int
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The chunks of one series that arrived after a position."""

    name: str
    from_step: int
    num_samples: int


async def series_page(
    connection: asyncpg.Connection, query: SeriesQuery, limit: int
) -> list[SeriesOfJob]:
    """Series by name, those after `after` whose name contains `search` in any case."""
    rows = await connection.fetch(
        """
        select name, sum(num_samples)::bigint as num_samples, min(first_step) as first_step,
            (array_agg(last_step order by attempt desc))[1] as last_step,
            (array_agg(last_value order by attempt desc))[1] as last_value
        from series
        where job_id = $1 and rank = $2 and name > $4 and strpos(lower(name), lower($3)) > 0
            and (name ~ $5) = $6
        group by name order by name limit $7
        """,
        query.job_id,
        query.rank,
        query.search,
        query.after,
        system_series.PATTERN,
        query.system,
        limit,
    )
    return [SeriesOfJob(**dict(row)) for row in rows]


async def num_series(connection: asyncpg.Connection, query: SeriesQuery) -> int:
    found = await connection.fetchval(
        """
        select count(distinct name) from series
        where job_id = $1 and rank = $2 and strpos(lower(name), lower($3)) > 0
            and (name ~ $4) = $5
        """,
        query.job_id,
        query.rank,
        query.search,
        system_series.PATTERN,
        query.system,
    )
    return int(found)


async def num_left_out(connection: asyncpg.Connection, job_id: str) -> int:
    """How many samples the job logged under more names than it may have."""
    found = await connection.fetchval(
        "select num_samples_left_out from sample_heads where job_id = $1", job_id
    )
    return int(found or 0)


async def newest_system_values(
    connection: asyncpg.Connection, job_id: str, from_rank: int, limit: int
) -> list[SystemValue]:
    """By rank and name, of each rank's latest run: the first `limit` ranks from `from_rank` on."""
    rows = await connection.fetch(
        """
        with system as (
            select rank, name, attempt, last_step, last_value from series
            where job_id = $1 and rank >= $2 and name like 'system/%' and name ~ $4),
        shown as (select distinct rank from system order by rank limit $3)
        select distinct on (rank, name) rank, name, last_step, last_value
        from system join shown using (rank)
        order by rank, name, attempt desc
        """,
        job_id,
        from_rank,
        limit,
        system_series.PATTERN,
    )
    return [SystemValue(*row) for row in rows]


async def names_of_job(
    connection: asyncpg.Connection, job_id: str, rank: int, attempt: int | None, *, system: bool
) -> list[str]:
    rows = await connection.fetch(
        """
        select distinct name from series
        where job_id = $1 and rank = $2 and ($3::integer is null or attempt = $3)
            and (name ~ $4) = $5
        order by name
        """,
        job_id,
        rank,
        attempt,
        system_series.PATTERN,
        system,
    )
    return [row["name"] for row in rows]


async def extents(connection: asyncpg.Connection, wanted: Range) -> list[Extent]:
    rows = await connection.fetch(
        """
        select name, run_id, attempt, num_samples, first_step, last_step, base_width from series
        where job_id = $1 and rank = $2 and name = any($3)
            and ($4::integer is null or attempt = $4)
        order by name, attempt
        """,
        wanted.job_id,
        wanted.rank,
        wanted.names,
        wanted.attempt,
    )
    return [Extent(*row) for row in rows]


async def first_readable_step(
    connection: asyncpg.Connection, wanted: Range, max_samples: int
) -> int:
    """The step from which on the range holds at most about `max_samples`, read from its end."""
    found = await connection.fetchval(
        """
        select coalesce(max(max_step) + 1, $4) from (
            select max_step, sum(num_samples) over (order by max_step desc, id desc) as num_read
            from (
                select job_id, rank, series, attempt, id, num_samples, min_step, max_step
                from chunks
                union all
                select job_id, rank, series, attempt, 0, num_samples, min_step, max_step
                from cold_chunks
            ) as either
            where job_id = $1 and rank = $2 and series = any($3)
                and max_step >= $4 and min_step <= $5 and ($6::integer is null or attempt = $6)
        ) as chunk
        where num_read > $7
        """,
        *_arguments(wanted),
        max_samples,
    )
    return int(found)


async def chunks_of_series(connection: asyncpg.Connection, wanted: Range) -> dict[str, list[Chunk]]:
    """The chunks of each series that overlap the range, in the order they arrived."""
    rows = await connection.fetch(
        """
        select series, attempt, steps, values from chunks
        where job_id = $1 and rank = $2 and series = any($3)
            and max_step >= $4 and min_step <= $5 and ($6::integer is null or attempt = $6)
        order by id
        """,
        *_arguments(wanted),
    )
    chunks: dict[str, list[Chunk]] = {name: [] for name in wanted.names}
    for row in rows:
        chunks[row["series"]].append(Chunk(row["attempt"], row["steps"], row["values"]))
    return chunks


_COLD = """
    key, size_bytes, footer_offset, row_group, first_row, cold_chunks.num_samples, series, attempt
"""


async def cold_chunks_of_series(connection: asyncpg.Connection, wanted: Range) -> list[ColdChunk]:
    """Those that overlap the range and are in the object store, in the order they arrived."""
    rows = await connection.fetch(
        f"""
        select {_COLD} from cold_chunks join cold_files on cold_files.id = file_id
        where job_id = $1 and rank = $2 and series = any($3)
            and max_step >= $4 and min_step <= $5 and ($6::integer is null or attempt = $6)
        order by file_id, row_group, first_row
        """,
        *_arguments(wanted),
    )
    return [ColdChunk(*row) for row in rows]


async def facts_of_all(
    connection: asyncpg.Connection, wanted: Range, parts: Sequence[tuple[Extent, int]]
) -> list[ChunkFacts]:
    """The chunks of these series of runs that overlap the steps from the one given.

    Those in the object store come first, as they arrived first.
    """
    if not parts:
        return []
    firsts = _firsts(parts)
    names = sorted({name for _, name in firsts})
    of_names = (wanted.job_id, wanted.rank, names, min(firsts.values()), wanted.to_step)
    cold = await connection.fetch(
        f"""
        select run_id, series, max_step, {_COLD}
        from cold_chunks join cold_files on cold_files.id = file_id
        where job_id = $1 and rank = $2 and series = any($3) and max_step >= $4 and min_step <= $5
        order by file_id, row_group, first_row
        """,
        *of_names,
    )
    rows = await connection.fetch(
        """
        select run_id, series, max_step, id, num_samples from chunks
        where job_id = $1 and rank = $2 and series = any($3) and max_step >= $4 and min_step <= $5
        """,
        *of_names,
    )
    found = [(row[2], ColdChunk(*row[3:])) for row in cold if _is_wanted(row, firsts)]
    return [
        *(ChunkFacts(0, one.num_samples, max_step, one) for max_step, one in found),
        *_facts(rows, firsts),
    ]


async def facts_of_new(
    connection: asyncpg.Connection, wanted: Range, parts: Sequence[tuple[Extent, int]]
) -> list[ChunkFacts]:
    """As `facts_of_all`, only chunks that are not in the levels yet."""
    if not parts:
        return []
    firsts = _firsts(parts)
    rows = await connection.fetch(
        """
        select run_id, series, max_step, id, num_samples from chunks
        where run_id = any($1) and rank = $2 and series = any($3) and is_new
            and max_step >= $4 and min_step <= $5
        """,
        sorted({run_id for run_id, _ in firsts}),
        wanted.rank,
        sorted({name for _, name in firsts}),
        min(firsts.values()),
        wanted.to_step,
    )
    return _facts(rows, firsts)


# The first step wanted, by run and series.
_Firsts = Mapping[tuple[str, str], int]


def _firsts(parts: Sequence[tuple[Extent, int]]) -> _Firsts:
    return {(extent.run_id, extent.name): first for extent, first in parts}


def _is_wanted(row: Any, firsts: _Firsts) -> bool:
    """Looked up here: joined with a list whose length is not known to the planner, each row may be
    compared with each part, and a job of many attempts has thousands of both."""
    first = firsts.get((row[0], row[1]))
    return first is not None and row[2] >= first


def _facts(rows: Iterable[Any], firsts: _Firsts) -> list[ChunkFacts]:
    return [ChunkFacts(row[3], row[4], row[2]) for row in rows if _is_wanted(row, firsts)]


async def chunks_by_id(
    connection: asyncpg.Connection, chunk_ids: Sequence[int]
) -> dict[tuple[str, int], list[Chunk]]:
    """By series and attempt, in the order they arrived."""
    rows = await connection.fetch(
        "select series, attempt, steps, values from chunks where id = any($1) order by id",
        chunk_ids,
    )
    chunks: dict[tuple[str, int], list[Chunk]] = {}
    for row in rows:
        chunks.setdefault((row[0], row[1]), []).append(Chunk(*row[1:]))
    return chunks


async def newest_chunk(connection: asyncpg.Connection, wanted: Range) -> int:
    """The position of the chunk of these series that arrived last; 0 where there is none."""
    found = await connection.fetchval(
        """
        select coalesce(max(newest.id), 0) from unnest($3::text[]) as wanted (name)
        cross join lateral (
            (select max(id) as id from chunks
            where job_id = $1 and rank = $2 and series = wanted.name)
            union all
            (select max(newest_chunk) from cold_chunks
            where job_id = $1 and rank = $2 and series = wanted.name)
        ) as newest
        """,
        wanted.job_id,
        wanted.rank,
        wanted.names,
    )
    return int(found)


async def changes(connection: asyncpg.Connection, wanted: Range, position: int) -> list[Change]:
    """What arrived of each series after this position."""
    rows = await connection.fetch(
        """
        select series, min(min_step), sum(num_samples)::bigint from (
            select series, min_step, num_samples from chunks
            where job_id = $1 and rank = $2 and series = any($3) and id > $4
                and ($5::integer is null or attempt = $5)
            union all
            select series, min_step, num_samples from cold_chunks
            where job_id = $1 and rank = $2 and series = any($3) and newest_chunk > $4
                and ($5::integer is null or attempt = $5)
        ) as either
        group by series
        """,
        wanted.job_id,
        wanted.rank,
        wanted.names,
        position,
        wanted.attempt,
    )
    return [Change(*row) for row in rows]


def _arguments(wanted: Range) -> tuple[object, ...]:
    return (
        wanted.job_id,
        wanted.rank,
        wanted.names,
        wanted.from_step,
        wanted.to_step,
        wanted.attempt,
    )
