"""The statements about the files of jobs: one function each."""

from collections.abc import Sequence

import asyncpg


async def set_newest_list(connection: asyncpg.Connection, job_id: str, name: str) -> bool:
    """False where this list or a newer one is known. Names sort in the order of lists."""
    found = await connection.fetchval(
        """
        update jobs set files_list = $2
        where job_id = $1 and (files_list is null or files_list < $2 collate "C")
        returning 1
        """,
        job_id,
        name,
    )
    return found is not None


async def set_unnamed(connection: asyncpg.Connection, job_id: str, keys: Sequence[str]) -> None:
    """These blobs are unnamed now; of the others it is forgotten that they were."""
    await connection.execute(
        "delete from unnamed_blobs where job_id = $1 and not key = any($2::text[])",
        job_id,
        list(keys),
    )
    await connection.execute(
        """
        insert into unnamed_blobs (job_id, key) select $1, unnest($2::text[])
        on conflict do nothing
        """,
        job_id,
        list(keys),
    )


async def unnamed_for(
    connection: asyncpg.Connection, job_id: str, seconds: float, limit: int
) -> list[str]:
    """Blobs that were unnamed for so long at every look since."""
    rows = await connection.fetch(
        """
        select key from unnamed_blobs
        where job_id = $1 and seen_at <= statement_timestamp() - $2 * interval '1 second'
        order by seen_at limit $3
        """,
        job_id,
        seconds,
        limit,
    )
    return [row["key"] for row in rows]


async def now(connection: asyncpg.Connection) -> float:
    """The clock of the database, in seconds."""
    seconds = await connection.fetchval("select extract(epoch from clock_timestamp())::float8")
    return float(seconds)


async def begin_again(connection: asyncpg.Connection) -> None:
    """It is not known since when blobs are unnamed: they are since now."""
    await connection.execute("update unnamed_blobs set seen_at = clock_timestamp()")
