"""Every statement about samples in the object store, one function each; no rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import numpy as np
from numpy.typing import NDArray

from drivetrain_schemas.runs import RunState
from services.metrics.core.layout import Part, Piece, Samples

_ARRAY_HEAD = 20  # bytes
_ENDED = ", ".join(f"'{state}'" for state in RunState if state.is_final)
# A trial whose rungs are not all announced may need its samples; the samples of a series without
# levels are needed to begin these, until its run has ended.
_MAY_MOVE = f"""
    not chunks.is_new
    and not exists (
        select from trials where trials.job_id = chunks.job_id and trials.finished_at is null)
    and exists (
        select from series
        where series.run_id = chunks.run_id and series.rank = chunks.rank
            and series.name = chunks.series
            and (series.base_width is not null or not exists (
                select from runs where runs.run_id = chunks.run_id
                    and (runs.state is null or runs.state not in ({_ENDED})))))
"""


class OldChunk(NamedTuple):
    chunk_id: int
    num_samples: int
    received_at: datetime
    overdue: timedelta


class SeriesChunk(NamedTuple):
    chunk_id: int
    part: Part
    samples: Samples


@dataclass(frozen=True, slots=True)
class File:
    """An object that was read back after it was written."""

    file_id: int
    size_bytes: int
    footer_offset: int
    newest_at: datetime
    # Of each part, the number of its last chunk.
    newest_chunks: Mapping[Part, int]


class FileToDelete(NamedTuple):
    file_id: int
    key: str


_CHUNK_COLUMNS = (
    *("job_id", "series", "rank", "attempt", "run_id", "row_group", "first_row"),
    *("file_id", "num_samples", "min_step", "max_step", "newest_chunk"),
)


async def old_chunks(
    connection: asyncpg.Connection, age: timedelta, max_samples: int, limit: int
) -> list[OldChunk]:
    """The first of the chunks that arrived before that, until they hold so many samples."""
    rows = await connection.fetch(
        f"""
        select id, num_samples, received_at, overdue from (
            select id, num_samples, received_at,
                now() - $1::interval - received_at as overdue,
                sum(num_samples) over (order by received_at, id) - num_samples as num_before
            from chunks where received_at < statement_timestamp() - $1::interval and {_MAY_MOVE}
            order by received_at, id limit $3
        ) as chunk
        where num_before < $2 order by received_at, id
        """,
        age,
        max_samples,
        limit,
    )
    return [OldChunk(*row) for row in rows]


async def chunks(connection: asyncpg.Connection, chunk_ids: Sequence[int]) -> list[SeriesChunk]:
    """In the order they arrived."""
    rows = await connection.fetch(
        """
        select id, job_id, series, rank, attempt, run_id, array_send(steps), array_send(values)
        from chunks where id = any($1) order by id
        """,
        chunk_ids,
    )
    return [
        SeriesChunk(
            row[0],
            Part(*row[1:6]),
            Samples(_numbers(row[6], ">i8"), _numbers(row[7], ">f8")),
        )
        for row in rows
    ]


async def intend(connection: asyncpg.Connection, key: str) -> int:
    """The number of a file that is about to be written."""
    found = await connection.fetchval(
        "insert into cold_files (key, state) values ($1, 'writing') returning id", key
    )
    return int(found)


async def lock_series(connection: asyncpg.Connection, parts: Sequence[Part]) -> None:
    """In the order in which batches lock them."""
    await connection.execute(
        """
        select from series join unnest($1::text[], $2::integer[], $3::text[])
            as moved (run_id, rank, name) using (run_id, rank, name)
        order by run_id collate "C", rank, name collate "C" for update of series
        """,
        [part.run_id for part in parts],
        [part.rank for part in parts],
        [part.series for part in parts],
    )


async def record(connection: asyncpg.Connection, file: File, pieces: Sequence[Piece]) -> bool:
    """The file is readable from now on. False where its intent is gone."""
    row = await connection.fetchval(
        """
        update cold_files set state = 'stored', size_bytes = $2, footer_offset = $3,
            num_samples = $4, newest_at = $5
        where id = $1 and state = 'writing' returning id
        """,
        file.file_id,
        file.size_bytes,
        file.footer_offset,
        sum(len(piece.samples.steps) for piece in pieces),
        file.newest_at,
    )
    if row is None:
        return False
    await connection.copy_records_to_table(
        "cold_chunks",
        columns=_CHUNK_COLUMNS,
        records=[
            (
                *piece.part,
                piece.row_group,
                piece.first_row,
                file.file_id,
                len(piece.samples.steps),
                int(piece.samples.steps[0]),
                int(piece.samples.steps[-1]),
                file.newest_chunks[piece.part],
            )
            for piece in pieces
        ],
    )
    return True


async def set_cold(
    connection: asyncpg.Connection, parts: Sequence[Part], newest_at: datetime
) -> None:
    await connection.execute(
        """
        update series set cold_at = greatest(cold_at, $4)
        from unnest($1::text[], $2::integer[], $3::text[]) as moved (run_id, rank, name)
        where series.run_id = moved.run_id and series.rank = moved.rank and series.name = moved.name
        """,
        [part.run_id for part in parts],
        [part.rank for part in parts],
        [part.series for part in parts],
        newest_at,
    )


async def delete_chunks(connection: asyncpg.Connection, chunk_ids: Sequence[int]) -> int:
    """Returns how many there were."""
    status = await connection.execute("delete from chunks where id = any($1)", chunk_ids)
    return int(status.split()[-1])


async def give_up_intents(connection: asyncpg.Connection) -> None:
    """What was being written is never recorded: only one process writes at a time."""
    await connection.execute("update cold_files set state = 'deleting' where state = 'writing'")


async def forget_old_files(connection: asyncpg.Connection, keep: timedelta, limit: int) -> int:
    """Files whose newest sample arrived before that are no longer read. Returns their samples."""
    found = await connection.fetchval(
        """
        with old as (
            update cold_files set state = 'deleting' where id = any(array(
                select id from cold_files
                where state = 'stored' and newest_at < statement_timestamp() - $1::interval
                order by newest_at limit $2))
            returning id, num_samples),
        forgotten as (delete from cold_chunks where file_id in (select id from old))
        select coalesce(sum(num_samples), 0) from old
        """,
        keep,
        limit,
    )
    return int(found)


async def files_to_delete(
    connection: asyncpg.Connection, late: timedelta, limit: int
) -> list[FileToDelete]:
    """Those that were stored, and those that nobody writes any more: intended so long ago.

    Any of them, so that objects that cannot be deleted do not fill every pass.
    """
    rows = await connection.fetch(
        """
        select id, key from cold_files
        where state = 'deleting'
            and (newest_at is not null or created_at < statement_timestamp() - $1::interval)
        order by random() limit $2
        """,
        late,
        limit,
    )
    return [FileToDelete(*row) for row in rows]


async def forget_file(connection: asyncpg.Connection, file_id: int) -> None:
    await connection.execute("delete from cold_files where id = $1 and state = 'deleting'", file_id)


async def overdue_seconds(connection: asyncpg.Connection, age: timedelta) -> float:
    """For how long the oldest chunk should have been moved; 0 where none is left."""
    found = await connection.fetchval(
        f"""
        select extract(epoch from statement_timestamp() - $1::interval - received_at)::float8
        from chunks where received_at < statement_timestamp() - $1::interval and {_MAY_MOVE}
        order by received_at limit 1
        """,
        age,
    )
    return float(found or 0.0)


def _numbers(sent: bytes, form: str) -> NDArray[Any]:
    """Of an array as Postgres sends it: a head, then each element after its length, none null."""
    found = np.frombuffer(sent, [("length", ">i4"), ("value", form)], offset=_ARRAY_HEAD)["value"]
    return found.astype(np.dtype(form).newbyteorder("="))
