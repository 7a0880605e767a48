"""The statements about the slots that nodes offer, and when; no rules."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.nodes import NodeRegistered
from services.cost.core.pools import Offer
from services.cost.core.prices import SlotKind
from services.cost.core.steps import EPOCH, FAR_FUTURE


async def begin_offer(connection: asyncpg.Connection, node: NodeRegistered, at: datetime) -> None:
    """From now on the node offers these slots; nothing changes where it did already."""
    same = await connection.fetchval(
        """
        select true from node_offers
        where node_id = $1 and ends_at is null
            and (pool, device_type, num_slots, is_spot) = ($2, $3, $4, $5)
        """,
        node.node_id,
        node.pool,
        node.device_type,
        node.num_slots,
        bool(node.is_spot),
    )
    if same:
        return
    await end_offer(connection, node.node_id, at)
    await connection.execute(
        """
        insert into node_offers (node_id, pool, device_type, num_slots, starts_at, is_spot)
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing
        """,
        node.node_id,
        node.pool,
        node.device_type,
        node.num_slots,
        at,
        bool(node.is_spot),
    )


async def end_offer(connection: asyncpg.Connection, node_id: str, at: datetime) -> None:
    """What begins later is not ended by this; an offer of no time is removed."""
    await connection.execute(
        "delete from node_offers where node_id = $1 and ends_at is null and starts_at = $2",
        node_id,
        at,
    )
    await connection.execute(
        """
        update node_offers set ends_at = $2
        where node_id = $1 and ends_at is null and starts_at < $2
        """,
        node_id,
        at,
    )


async def kind_offered(connection: asyncpg.Connection, pool: str, device_type: str) -> SlotKind:
    """What a job of this pool would get: spot where it has nothing else, on demand otherwise."""
    is_spot = await connection.fetchval(
        """
        select coalesce(bool_and(is_spot), false) from node_offers
        where pool = $1 and device_type = $2 and ends_at is null
        """,
        pool,
        device_type,
    )
    return SlotKind(pool, device_type, is_spot)


async def offers(
    connection: asyncpg.Connection, starts_at: datetime, ends_at: datetime
) -> Sequence[Offer]:
    """What nodes offered in this time."""
    rows = await connection.fetch(
        """
        select * from node_offers
        where starts_at < $2 and (ends_at is null or ends_at > $1) order by node_id, starts_at
        """,
        starts_at,
        ends_at,
    )
    return [_offer(row, starts_at, ends_at) for row in rows]


async def offers_of(
    connection: asyncpg.Connection, node_ids: Iterable[str], since: datetime
) -> Mapping[str, Sequence[Offer]]:
    """What these nodes offered after `since`; an offer that has not ended has no end."""
    rows = await connection.fetch(
        """
        select * from node_offers
        where node_id = any($1) and (ends_at is null or ends_at > $2) order by node_id, starts_at
        """,
        sorted(set(node_ids)),
        since,
    )
    found: dict[str, list[Offer]] = defaultdict(list)
    for row in rows:
        found[row["node_id"]].append(_offer(row, EPOCH, FAR_FUTURE))
    return found


def _offer(row: Any, starts_at: datetime, ends_at: datetime) -> Offer:
    return Offer(
        row["pool"],
        row["device_type"],
        row["num_slots"],
        max(row["starts_at"], starts_at),
        ends_at if row["ends_at"] is None else min(row["ends_at"], ends_at),
        row["is_spot"],
    )
