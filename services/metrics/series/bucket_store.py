"""The statements that read many curves of several jobs at once, as arrays; no rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import asyncpg
import numpy as np
from numpy.typing import NDArray

from services.metrics.cold.reading import ColdChunk
from services.metrics.core.bucketing import NONE, Clock, Rows
from services.metrics.core.layout import Samples

# Arrays as Postgres sends them: the bytes before the first element, and those of each.
_HEAD = 20
_ELEMENT = 12
# Of a row of a level, as Postgres sends it and as it is here.
_COLUMNS = (
    *((">i8", np.int64),) * 2,
    (">i4", np.int64),
    *((">f8", np.float64),) * 3,
    (">i8", np.int64),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One series of one run of a job."""

    job_id: str
    name: str
    run_id: str
    attempt: int
    num_samples: int
    first_step: int
    last_step: int
    base_width: int | None


class TilesOfPart(NamedTuple):
    """`part` is the number of a part in the request's list."""

    part: int
    run_id: str
    name: str
    level: int
    first_tile: int
    last_tile: int


class ChunksOfPart(NamedTuple):
    part: int
    job_id: str
    name: str
    run_id: str
    from_step: int
    to_step: int
    only_new: bool


async def parts(
    connection: asyncpg.Connection, job_ids: Sequence[str], names: Sequence[str], rank: int
) -> list[Part]:
    rows = await connection.fetch(
        """
        select job_id, name, run_id, attempt, num_samples, first_step, last_step, base_width
        from series where job_id = any($1) and rank = $3 and name = any($2)
        order by job_id, name, attempt desc
        """,
        job_ids,
        names,
        rank,
    )
    return [Part(*row) for row in rows]


async def clocks(
    connection: asyncpg.Connection, job_ids: Sequence[str]
) -> dict[tuple[str, int], Clock]:
    """By job and attempt."""
    rows = await connection.fetch(
        """
        select job_id, attempt, array_send(array_agg(step::float8 order by step)),
            array_send(array_agg(at order by step))
        from run_times where job_id = any($1) group by job_id, attempt
        """,
        job_ids,
    )
    newest = await connection.fetch(
        """
        select job_id, attempt, clock[4], clock[5] from runs
        where job_id = any($1) and clock is not null
        """,
        job_ids,
    )
    found = {
        (row[0], row[1]): Clock(
            numbers(row[2], ">f8", np.float64), numbers(row[3], ">f8", np.float64)
        )
        for row in rows
    }
    for job_id, attempt, step, at in newest:
        known = found.get((job_id, attempt), Clock(np.empty(0), np.empty(0)))
        found[job_id, attempt] = known.with_point(step, at)
    return found


async def tiles(
    connection: asyncpg.Connection, rank: int, wanted: Sequence[TilesOfPart]
) -> dict[tuple[int, int], Rows]:
    """By part and level, in the order of their steps."""
    if not wanted:
        return {}
    rows = await connection.fetch(
        f"""
        select part, level, array_send(first_steps), array_send(last_steps),
            array_send(num_finite), array_send(lows), array_send(highs), array_send(means),
            array_send(array_replace(not_finite_steps, null, {NONE}::bigint))
        from unnest($2::integer[], $3::text[], $4::text[], $5::smallint[], $6::bigint[],
            $7::bigint[]) as wanted (part, run_id, series, level, first_tile, last_tile)
        join levels using (run_id, series, level)
        where rank = $1 and tile between first_tile and last_tile
        order by part, level, tile
        """,
        rank,
        *(list(column) for column in zip(*wanted, strict=True)),
    )
    if not rows:
        return {}
    # All at once: there may be very many. Those of a part and level follow each other.
    columns = [
        _elements(b"".join([row[place][_HEAD:] for row in rows]), form, 0).astype(kind)
        for place, (form, kind) in enumerate(_COLUMNS, start=2)
    ]
    sizes: dict[tuple[int, int], int] = {}
    for row in rows:
        key = row[0], row[1]
        sizes[key] = sizes.get(key, 0) + (len(row[2]) - _HEAD) // _ELEMENT
    ends = np.cumsum(list(sizes.values())).tolist()
    return {
        key: Rows._make(column[first:end] for column in columns)
        for key, (first, end) in zip(sizes, pairwise([0, *ends]), strict=True)
    }


async def hot_chunks(
    connection: asyncpg.Connection, rank: int, wanted: Sequence[ChunksOfPart]
) -> list[tuple[int, Samples]]:
    """Of each part its chunks in Postgres, in the order they arrived."""
    if not wanted:
        return []
    rows = await connection.fetch(
        f"""
        select part, array_send(steps), array_send(values) from {_WANTED_CHUNKS}
        join chunks on chunks.job_id = wanted.job_id and chunks.rank = $1
            and chunks.series = wanted.name and chunks.run_id = wanted.run_id
            and chunks.max_step >= from_step and chunks.min_step <= to_step
            and (chunks.is_new or not only_new)
        order by chunks.id
        """,
        rank,
        *(list(column) for column in zip(*wanted, strict=True)),
    )
    return list(zip([row[0] for row in rows], _samples(rows), strict=True))


async def cold_chunks(
    connection: asyncpg.Connection, rank: int, wanted: Sequence[ChunksOfPart]
) -> list[tuple[int, ColdChunk]]:
    """Of each part its chunks in the object store, in the order they arrived."""
    if not wanted:
        return []
    rows = await connection.fetch(
        f"""
        select part, key, size_bytes, footer_offset, row_group, first_row,
            cold_chunks.num_samples, cold_chunks.series, cold_chunks.attempt
        from {_WANTED_CHUNKS}
        join cold_chunks on cold_chunks.job_id = wanted.job_id and cold_chunks.rank = $1
            and cold_chunks.series = wanted.name and cold_chunks.run_id = wanted.run_id
            and cold_chunks.max_step >= from_step and cold_chunks.min_step <= to_step
            and not only_new
        join cold_files on cold_files.id = cold_chunks.file_id
        order by cold_chunks.file_id, row_group, first_row
        """,
        rank,
        *(list(column) for column in zip(*wanted, strict=True)),
    )
    return [(row[0], ColdChunk(*row[1:])) for row in rows]


_WANTED_CHUNKS = """
unnest($2::integer[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
    $8::boolean[]) as wanted (part, job_id, name, run_id, from_step, to_step, only_new)
"""


def samples(steps: bytes, values: bytes) -> Samples:
    """Of two arrays as Postgres sends them."""
    return Samples(numbers(steps, ">i8", np.int64), numbers(values, ">f8", np.float64))


def _samples(chunks: Sequence[Any]) -> list[Samples]:
    """Of rows with two arrays after their part, all at once: there may be very many."""
    steps, values = (b"".join([row[place][_HEAD:] for row in chunks]) for place in (1, 2))
    ends = np.cumsum([(len(row[1]) - _HEAD) // _ELEMENT for row in chunks]).tolist()
    all_steps = _elements(steps, ">i8", 0).astype(np.int64)
    all_values = _elements(values, ">f8", 0).astype(np.float64)
    return [
        Samples(all_steps[first:end], all_values[first:end]) for first, end in pairwise([0, *ends])
    ]


def numbers(sent: bytes, form: str, kind: type) -> NDArray[Any]:
    return _elements(sent, form).astype(kind)


def _elements(sent: bytes, form: str, offset: int = _HEAD) -> NDArray[Any]:
    """A head, then each element after its length; none of them is null."""
    return np.frombuffer(sent, [("length", ">i4"), ("value", form)], offset=offset)["value"]
