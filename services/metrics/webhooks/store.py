"""The table of deliveries to webhooks: one function per statement, no rules."""

from dataclasses import dataclass

import asyncpg

from services.metrics.core.webhooks import Turn


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """Where it has a turn, it is not sent before what waits already and tells the opposite."""

    webhook: str
    event_id: str
    body: str
    turn: Turn | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one webhook; `num_tries` with the one that is made now."""

    id: int
    event_id: str
    body: str
    num_tries: int


async def add(connection: asyncpg.Connection, new: NewDelivery, at_most: int) -> bool:
    """False where so many wait for this webhook already."""
    row = await connection.fetchval(
        """insert into deliveries (webhook, event_id, body, about, is_begin)
        select $1, $2, $3, $5, $6
        where (select count(*) from (
            select from deliveries where webhook = $1 limit $4) waiting) < $4
        on conflict (webhook, event_id) do nothing returning 1""",
        new.webhook,
        new.event_id,
        new.body,
        at_most,
        *(new.turn or (None, None)),
    )
    return row is not None


async def begin(
    connection: asyncpg.Connection, webhook: str, retry_seconds: float
) -> Delivery | None:
    """The next one that is due and has its turn, counted as tried: not due again before
    `retry_seconds`, so that a process that dies meanwhile costs one try."""
    row = await connection.fetchrow(
        """update deliveries set num_tries = num_tries + 1,
            not_before = clock_timestamp() + make_interval(secs => $2)
        where id = (
            select id from deliveries as due
            where webhook = $1 and not_before <= statement_timestamp() and not exists (
                select from deliveries as earlier
                where earlier.webhook = $1 and earlier.about = due.about
                    and earlier.id < due.id and earlier.is_begin <> due.is_begin)
            order by not_before, id limit 1 for update skip locked)
        returning id, event_id, body, num_tries""",
        webhook,
        retry_seconds,
    )
    return None if row is None else Delivery(**dict(row))


async def again(connection: asyncpg.Connection, delivery_id: int, seconds: float) -> None:
    await connection.execute(
        """update deliveries set not_before = clock_timestamp() + make_interval(secs => $2)
        where id = $1""",
        delivery_id,
        seconds,
    )


async def end(connection: asyncpg.Connection, delivery_id: int) -> None:
    await connection.execute("delete from deliveries where id = $1", delivery_id)
