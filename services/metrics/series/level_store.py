"""Every statement about levels and new chunks, one function each; no rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import asyncpg

from services.metrics.core.buckets import Bucket
from services.metrics.core.levels import TileKey
from services.metrics.core.series import Chunk, Series


class SeriesKey(NamedTuple):
    """One series of one rank of one run."""

    run_id: str
    rank: int
    name: str


@dataclass(frozen=True, slots=True)
class NewChunks:
    """How much of a series is not in the levels yet; `is_old`: some of it for a while."""

    key: SeriesKey
    num_chunks: int
    num_samples: int
    is_old: bool


@dataclass(frozen=True, slots=True)
class LockedSeries:
    job_id: str
    attempt: int
    base_width: int | None
    # Some of its samples are in the object store.
    is_cold: bool


@dataclass(frozen=True, slots=True)
class StoredChunk:
    chunk_id: int
    chunk: Chunk


class Before(NamedTuple):
    """Which chunk of a series to look for: before this one, with at most so many samples."""

    key: SeriesKey
    job_id: str
    chunk_id: int
    max_samples: int


class Tiles(NamedTuple):
    """Which tiles of one series of one run to read."""

    run_id: str
    name: str
    level: int
    first_tile: int
    last_tile: int


async def new_chunks(
    connection: asyncpg.Connection, after: SeriesKey, limit: int, old: timedelta
) -> tuple[list[NewChunks], bool]:
    """Of the next `limit` new chunks in the order of their series; True where there are more."""
    rows = await connection.fetch(
        """
        select run_id, rank, series, count(*)::integer as num_chunks,
            sum(num_samples)::bigint as num_samples,
            min(received_at) < statement_timestamp() - $5::interval as is_old
        from (
            select run_id, rank, series, num_samples, received_at from chunks
            where is_new and (run_id, rank, series) > ($1, $2, $3)
            order by run_id, rank, series limit $4
        ) as chunk
        group by run_id, rank, series order by run_id, rank, series
        """,
        *after,
        limit,
        old,
    )
    found = [NewChunks(SeriesKey(*row[:3]), row[3], row[4], row[5]) for row in rows]
    return found, sum(one.num_chunks for one in found) >= limit


async def lock_series(
    connection: asyncpg.Connection, keys: Sequence[SeriesKey]
) -> dict[SeriesKey, LockedSeries]:
    """Those that exist, locked in the order in which all transactions lock series."""
    rows = await connection.fetch(
        """
        select run_id, rank, name, job_id, attempt, base_width, cold_at is not null from series
        join unnest($1::text[], $2::integer[], $3::text[]) as wanted (run_id, rank, name)
            using (run_id, rank, name)
        order by run_id collate "C", rank, name collate "C" for update of series
        """,
        *_columns(keys),
    )
    return {SeriesKey(*row[:3]): LockedSeries(*row[3:]) for row in rows}


async def take_new(
    connection: asyncpg.Connection, keys: Sequence[SeriesKey], max_samples: int
) -> dict[SeriesKey, list[StoredChunk]]:
    """Of each series its new chunks in the order they arrived, until they hold so many samples, at
    least one. Series without new chunks are left out.
    """
    rows = await connection.fetch(
        """
        select wanted.*, id, attempt, steps, values
        from unnest($1::text[], $2::integer[], $3::text[]) as wanted (run_id, rank, series),
            lateral (
                select *, sum(num_samples) over (order by id) - num_samples as num_before
                from (
                    select id, attempt, steps, values, num_samples from chunks
                    where chunks.run_id = wanted.run_id and chunks.rank = wanted.rank
                        and chunks.series = wanted.series and is_new
                    order by id limit 1000
                ) as first
            ) as chunk
        where num_before < $4 order by id
        """,
        *_columns(keys),
        max_samples,
    )
    found: dict[SeriesKey, list[StoredChunk]] = {}
    for row in rows:
        found.setdefault(SeriesKey(*row[:3]), []).append(StoredChunk(row[3], Chunk(*row[4:])))
    return found


async def chunks_before(
    connection: asyncpg.Connection, wanted: Sequence[Before]
) -> dict[SeriesKey, StoredChunk]:
    """Of each series the last chunk before that which is in the levels, where there is room."""
    rows = await connection.fetch(
        """
        select wanted.run_id, wanted.rank, wanted.series, id, attempt, steps, values
        from unnest($1::text[], $2::integer[], $3::text[], $4::text[], $5::bigint[], $6::integer[])
                as wanted (run_id, rank, series, job_id, chunk_id, max_samples),
            lateral (
                select id, attempt, steps, values, num_samples from chunks
                where chunks.job_id = wanted.job_id and chunks.rank = wanted.rank
                    and chunks.series = wanted.series and chunks.id < wanted.chunk_id
                    and chunks.run_id = wanted.run_id and not is_new
                order by id desc limit 1
            ) as chunk
        where chunk.num_samples <= wanted.max_samples
        """,
        *_columns([one.key for one in wanted]),
        [one.job_id for one in wanted],
        [one.chunk_id for one in wanted],
        [one.max_samples for one in wanted],
    )
    return {SeriesKey(*row[:3]): StoredChunk(row[3], Chunk(*row[4:])) for row in rows}


def _columns(keys: Sequence[SeriesKey]) -> tuple[list[str], list[int], list[str]]:
    return [key.run_id for key in keys], [key.rank for key in keys], [key.name for key in keys]


async def keep_as_they_are(connection: asyncpg.Connection, chunk_ids: Sequence[int]) -> None:
    await connection.execute("update chunks set is_new = false where id = any($1)", chunk_ids)


async def replace_chunks(
    connection: asyncpg.Connection, replaced: Sequence[tuple[Sequence[int], Series]]
) -> None:
    """One chunk instead of several. It has the last one's number: the order of arrival stays."""
    await connection.execute(
        "delete from chunks where id = any($1)",
        [chunk_id for chunk_ids, _ in replaced for chunk_id in chunk_ids[:-1]],
    )
    await connection.executemany(
        """
        update chunks set is_new = false, num_samples = $2, min_step = $3, max_step = $4,
            steps = $5, values = $6
        where id = $1
        """,
        [
            (ids[-1], len(one.steps), one.steps[0], one.steps[-1], one.steps, one.values)
            for ids, one in replaced
        ],
    )


async def set_base_width(connection: asyncpg.Connection, key: SeriesKey, base_width: int) -> None:
    await connection.execute(
        "update series set base_width = $4 where run_id = $1 and rank = $2 and name = $3",
        *key,
        base_width,
    )


_BUCKETS = "first_steps, last_steps, num_finite, lows, highs, means, not_finite_steps"


async def tiles_of(
    connection: asyncpg.Connection, key: SeriesKey, wanted: Sequence[TileKey]
) -> dict[TileKey, list[Bucket]]:
    """Each is found by the index: a join may read all tiles of the series."""
    rows = await connection.fetch(
        f"""
        select found.* from unnest($4::smallint[], $5::bigint[]) as wanted (level, tile), lateral (
            select level, tile, {_BUCKETS} from levels
            where run_id = $1 and rank = $2 and series = $3
                and level = wanted.level and tile = wanted.tile limit 1) as found
        """,
        *key,
        [level for level, _ in wanted],
        [tile for _, tile in wanted],
    )
    return {(row[0], row[1]): _buckets(row[2:]) for row in rows}


async def save_tiles(
    connection: asyncpg.Connection, key: SeriesKey, tiles: Mapping[TileKey, Sequence[Bucket]]
) -> None:
    await connection.executemany(
        f"""
        insert into levels (run_id, rank, series, level, tile, {_BUCKETS})
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        on conflict (run_id, rank, series, level, tile) do update set
            first_steps = excluded.first_steps, last_steps = excluded.last_steps,
            num_finite = excluded.num_finite, lows = excluded.lows, highs = excluded.highs,
            means = excluded.means, not_finite_steps = excluded.not_finite_steps
        """,
        [(*key, *tile, *map(list, zip(*buckets, strict=True))) for tile, buckets in tiles.items()],
    )


async def read_tiles(
    connection: asyncpg.Connection, rank: int, wanted: Sequence[Tiles]
) -> dict[tuple[str, str], list[Bucket]]:
    """By run and series, the buckets in the order of their steps.

    `offset 0`: each range is found by the index, where a join may read all tiles of the series.
    """
    rows = await connection.fetch(
        f"""
        select wanted.run_id, wanted.series, {_BUCKETS}
        from unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[])
            as wanted (run_id, series, level, first_tile, last_tile), lateral (
            select tile, {_BUCKETS} from levels
            where run_id = wanted.run_id and rank = $1 and series = wanted.series
                and level = wanted.level and tile between first_tile and last_tile
            offset 0) as found
        order by tile
        """,
        rank,
        *(list(column) for column in zip(*wanted, strict=True)),
    )
    found: dict[tuple[str, str], list[Bucket]] = {}
    for row in rows:
        found.setdefault((row[0], row[1]), []).extend(_buckets(row[2:]))
    return found


def _buckets(columns: Sequence[Sequence[float]]) -> list[Bucket]:
    return list(map(Bucket._make, zip(*columns, strict=True)))
