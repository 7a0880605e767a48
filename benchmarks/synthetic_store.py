"""A metrics store of any size, built in the service's own tables and files.

Jobs of 20 series each, in four shapes; all samples are in the object store, their levels in
Postgres, as the service leaves them a day after the jobs have ended.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import numpy as np

from drivetrain_schemas.ids import job_id_for, run_id_for
from services.metrics.cold import SERIES
from services.metrics.cold import format as cold_format
from services.metrics.cold import store as cold_store
from services.metrics.cold.store import File
from services.metrics.core import layout, levels
from services.metrics.core.layout import Part, Samples
from services.metrics.core.series import Series
from services.metrics.series import level_store
from services.metrics.series.level_store import SeriesKey
from services.runtime.database import Database
from services.runtime.object_store import ObjectStore

NUM_SERIES = 20
NUM_SHAPES = 4
NAMES = tuple(f"layer_{number}/gradient_norm" for number in range(NUM_SERIES))
MAX_STEPS = 1_000_000
SECONDS_PER_STEP = 0.25
NUM_TIMES = 2000


@dataclass(frozen=True, slots=True)
class Size:
    num_jobs: int
    num_steps: int

    @property
    def num_points(self) -> int:
        return self.num_jobs * NUM_SERIES * self.num_steps


def size_of(num_points: int) -> Size:
    """At least two jobs; series are as long as they may be."""
    num_steps = min(MAX_STEPS, num_points // NUM_SERIES // 2)
    return Size(num_points // NUM_SERIES // num_steps, num_steps)


def job(number: int) -> str:
    return job_id_for("default", f"synthetic-{number}")


def values_of(shape: int, num_steps: int) -> np.ndarray:
    """A loss that falls, with noise: every value differs in all of its digits."""
    noise = np.random.default_rng(shape).normal(size=num_steps)
    return 2.0 / np.sqrt(np.arange(1, num_steps + 1)) + 0.01 * noise


async def build(database: Database, store: ObjectStore, size: Size) -> None:
    shapes = [
        Samples(np.arange(size.num_steps, dtype=np.int64), values_of(shape, size.num_steps))
        for shape in range(NUM_SHAPES)
    ]
    first = run_id_for(job(0), 1)
    base_width = await _levels(database, shapes, first)
    for number in range(size.num_jobs):
        await asyncio.gather(
            _files(database, store, number, shapes), _tables(database, number, first, size)
        )
        if number % 10 == 9:
            print(f"{number + 1} of {size.num_jobs} jobs are built", flush=True)
    async with database.connection() as connection:
        await connection.execute(
            "update series set base_width = $1, cold_at = clock_timestamp()", base_width
        )
        for table in ("levels", "series", "cold_chunks", "cold_files", "run_times"):
            await connection.execute(f"vacuum analyze {table}", timeout=600)


async def _levels(database: Database, shapes: Sequence[Samples], run_id: str) -> int:
    """Of the first job. Returns the width of level 0."""
    base_width = 0
    for shape, (steps, values) in enumerate(shapes):
        series = Series(tuple(steps.tolist()), tuple(values.tolist()))
        step = await asyncio.to_thread(levels.add, series, 1, None, None)
        assert step.base_width is not None, "the series are too short to have levels"
        base_width = step.base_width
        tiles = list(step.tiles.items())
        for name in NAMES[shape::NUM_SHAPES]:
            for start in range(0, len(tiles), 500):
                async with database.connection() as connection:
                    await level_store.save_tiles(
                        connection, SeriesKey(run_id, 0, name), dict(tiles[start : start + 500])
                    )
    return base_width


async def _tables(database: Database, number: int, first: str, size: Size) -> None:
    job_id, run_id = job(number), run_id_for(job(number), 1)
    async with database.connection() as connection:
        if number:
            await connection.execute(
                """insert into levels select $2, rank, series, level, tile, first_steps, last_steps,
                    num_finite, lows, highs, means, not_finite_steps
                from levels where run_id = $1""",
                first,
                run_id,
                timeout=600,
            )
        await connection.execute(
            """insert into series (run_id, rank, name, job_id, attempt, num_samples, first_step,
                last_step, last_value)
            select $1, 0, unnest($2::text[]), $3, 1, $4::bigint, 0, $4::bigint - 1, 0.0""",
            run_id,
            NAMES,
            job_id,
            size.num_steps,
        )
        await connection.execute(
            """insert into run_times (job_id, attempt, step, at)
            select $1, 1, step, 1.7e9 + $2::float8 + step * $3::float8
            from (select distinct (place * ($4::bigint - 1) / $5::bigint) as step
                from generate_series(0, $5::bigint) as place) as point""",
            job_id,
            number * 3600.0,
            SECONDS_PER_STEP,
            size.num_steps,
            NUM_TIMES,
        )


async def _files(
    database: Database, store: ObjectStore, number: int, shapes: Sequence[Samples]
) -> None:
    for place, name in enumerate(NAMES):
        part = Part(job(number), name, 0, 1, run_id_for(job(number), 1))
        pieces = layout.lay_out([(part, shapes[place % NUM_SHAPES])])
        content = await asyncio.to_thread(cold_format.encode, pieces)
        key = f"{SERIES}synthetic/{number}-{place}.parquet"
        await store.put_if_absent(key, content)
        file = File(
            file_id=0,
            size_bytes=len(content),
            footer_offset=cold_format.footer_offset(content),
            newest_at=datetime.now(UTC),
            newest_chunks={part: 1},
        )
        async with database.transaction() as tx:
            await _record(tx.connection, key, file, pieces)


async def _record(
    connection: asyncpg.Connection, key: str, file: File, pieces: Sequence[layout.Piece]
) -> None:
    file_id = await cold_store.intend(connection, key)
    recorded = File(
        file_id, file.size_bytes, file.footer_offset, file.newest_at, file.newest_chunks
    )
    assert await cold_store.record(connection, recorded, pieces)
