"""Reads of parked records."""

from datetime import datetime

from services.gateway.queries.rows import Connection, Place, Row, as_row, as_rows


async def parked(connection: Connection, after: Place | None, limit: int) -> list[Row]:
    """Newest first, without the bytes."""
    rows = await connection.fetch(
        """
        select parked_id, service, topic, partition, "offset", reason, detail, parked_at,
            replays.replayed_at, coalesce(omitted_bytes, length(value), 0) as size_bytes
        from parked left join replays using (parked_id)
        where $1::timestamptz is null or (parked_at, parked_id) < ($1, $2)
        order by parked_at desc, parked_id desc limit $3
        """,
        *(after or (None, None)),
        limit,
    )
    return as_rows(rows)


async def record(connection: Connection, parked_id: str) -> Row | None:
    return as_row(
        await connection.fetchrow(
            """
            select parked.*, replays.replayed_at from parked left join replays using (parked_id)
            where parked_id = $1
            """,
            parked_id,
        )
    )


async def count_open(connection: Connection) -> int:
    """How many wait for a decision."""
    number: int = await connection.fetchval(
        "select count(*) from parked where not exists "
        "(select from replays where replays.parked_id = parked.parked_id)"
    )
    return number


async def insert_replay(connection: Connection, parked_id: str, at: datetime) -> None:
    await connection.execute(
        """
        insert into replays (parked_id, replayed_at) values ($1, $2)
        on conflict (parked_id) do update set replayed_at = excluded.replayed_at
        """,
        parked_id,
        at,
    )
