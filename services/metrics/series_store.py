"""Every statement that reads the series of a job, one function each; no rules.

All series of a request are read by one statement each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from services.metrics.core.series import Chunk


@dataclass(frozen=True, slots=True)
class SeriesOfJob:
    """One series over all runs of a job; last step and value are those of the latest run."""

    name: str
    num_samples: int
    first_step: int
    last_step: int
    last_value: float


@dataclass(frozen=True, slots=True)
class Extent:
    """The samples of one series of one run."""

    name: str
    attempt: int
    num_samples: int
    first_step: int
    last_step: int


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
    connection: asyncpg.Connection, job_id: str, rank: int, search: str, after: str, limit: int
) -> list[SeriesOfJob]:
    """Series by name, those after `after` whose name contains `search` in any case."""
    rows = await connection.fetch(
        """
        select name, sum(num_samples)::bigint as num_samples, min(first_step) as first_step,
            (array_agg(last_step order by attempt desc))[1] as last_step,
            (array_agg(last_value order by attempt desc))[1] as last_value
        from series
        where job_id = $1 and rank = $2 and name > $4 and strpos(lower(name), lower($3)) > 0
        group by name order by name limit $5
        """,
        job_id,
        rank,
        search,
        after,
        limit,
    )
    return [SeriesOfJob(**dict(row)) for row in rows]


async def num_series(connection: asyncpg.Connection, job_id: str, rank: int, search: str) -> int:
    found = await connection.fetchval(
        """
        select count(distinct name) from series
        where job_id = $1 and rank = $2 and strpos(lower(name), lower($3)) > 0
        """,
        job_id,
        rank,
        search,
    )
    return int(found)


async def names_of_job(
    connection: asyncpg.Connection, job_id: str, rank: int, attempt: int | None
) -> list[str]:
    rows = await connection.fetch(
        """
        select distinct name from series
        where job_id = $1 and rank = $2 and ($3::integer is null or attempt = $3) order by name
        """,
        job_id,
        rank,
        attempt,
    )
    return [row["name"] for row in rows]


async def extents(connection: asyncpg.Connection, wanted: Range) -> list[Extent]:
    rows = await connection.fetch(
        """
        select name, attempt, num_samples, first_step, last_step from series
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
            from chunks
            where job_id = $1 and rank = $2 and series = any($3)
                and max_step >= $4 and min_step <= $5 and ($6::integer is null or attempt = $6)
        ) as chunk
        where num_read > $7
        """,
        *_arguments(wanted),
        max_samples,
    )
    return int(found)


async def chunks_of_series(
    connection: asyncpg.Connection, wanted: Range, from_steps: Sequence[int] | None = None
) -> dict[str, list[Chunk]]:
    """The chunks of each series that overlap the range, in the order they arrived.

    `from_steps`: of each series, where its range begins instead.
    """
    rows = await connection.fetch(
        """
        select series, attempt, steps, values
        from unnest($3::text[], $4::bigint[]) as wanted (name, from_step)
        join chunks on job_id = $1 and rank = $2 and series = wanted.name
            and max_step >= wanted.from_step and min_step <= $5
            and ($6::integer is null or attempt = $6)
        order by id
        """,
        wanted.job_id,
        wanted.rank,
        wanted.names,
        from_steps or [wanted.from_step] * len(wanted.names),
        wanted.to_step,
        wanted.attempt,
    )
    chunks: dict[str, list[Chunk]] = {name: [] for name in wanted.names}
    for row in rows:
        chunks[row["series"]].append(Chunk(row["attempt"], row["steps"], row["values"]))
    return chunks


async def newest_chunk(connection: asyncpg.Connection, wanted: Range) -> int:
    """The position of the chunk of these series that arrived last; 0 where there is none."""
    found = await connection.fetchval(
        """
        select coalesce(max(newest.id), 0) from unnest($3::text[]) as wanted (name)
        cross join lateral (
            select max(id) as id from chunks
            where job_id = $1 and rank = $2 and series = wanted.name
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
        select series, min(min_step), sum(num_samples)::bigint from chunks
        where job_id = $1 and rank = $2 and series = any($3) and id > $4
            and ($5::integer is null or attempt = $5)
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
