"""The shares of every pool's day: what events tell, the task that adds them up, and the report.

An allocation is shared out some minutes after its release, once, so that a checkpoint that was
verified late still counts; until then the report works it out anew.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import asyncpg

from drivetrain_schemas.checkpoints import CheckpointCommitted
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLost,
    RunStarted,
    RunStopped,
    RunSucceeded,
)
from services.cost import store_pools
from services.cost.core.phases import Amount, Phase, by_day_and_phase
from services.cost.core.pools import PoolDay, Row, offered, rows
from services.cost.core.prices import PriceBook
from services.cost.instruments import SHARED
from services.cost.store_pools import HeldUsage
from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

# A checkpoint is verified within minutes of its run's end.
SHARE_AFTER = timedelta(minutes=10)
SHARE_SECONDS = 30.0
BATCH = 500
MAX_UNSHARED = 20_000

KINDS = (
    NodeRegistered,
    NodeRemoved,
    RunStarted,
    RunFailed,
    RunLost,
    RunInterrupted,
    RunSucceeded,
    RunStopped,
    RunCancelled,
    CheckpointCommitted,
)


async def handle(tx: Tx, event: Event[Any]) -> None:
    """Keep what the event tells about nodes and runs."""
    match event.payload:
        case NodeRegistered() as node:
            await store_pools.begin_offer(tx.connection, node, event.occurred_at)
        case NodeRemoved(node_id=node_id):
            await store_pools.end_offer(tx.connection, node_id, event.occurred_at)
        case RunStarted(run_id=run_id, started_at=started_at):
            await store_pools.note_started(tx.connection, run_id, started_at)
        case RunFailed() | RunLost() | RunInterrupted() as ended:
            await store_pools.note_ended(tx.connection, ended.run_id, ended.ended_at, True)
        case RunSucceeded() | RunStopped() | RunCancelled() as ended:
            await store_pools.note_ended(tx.connection, ended.run_id, ended.ended_at, False)
        case CheckpointCommitted() as saved:
            await store_pools.note_checkpoint(
                tx.connection, saved.run_id, event.occurred_at, saved.blocked_seconds or 0.0
            )


class Sharing:
    """A task of the service: adds up what was released, in steps."""

    def __init__(self, book: PriceBook) -> None:
        self._book = book

    async def run(self, platform: Platform) -> None:
        while not platform.stopping.is_set():
            num = 0
            try:
                num = await self.share(platform, SHARE_AFTER)
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning("released slots not shared out", error=repr(error))
            if num < BATCH:
                await platform.clock.sleep(SHARE_SECONDS)

    async def share(self, platform: Platform, age: timedelta) -> int:
        """How many allocations were shared out."""
        async with platform.database.transaction() as tx:
            held = await store_pools.to_share(tx.connection, age, BATCH)
            ids = [each.allocation_id for each in held]
            await store_pools.add_shares(tx.connection, _shares(held, self._book), ids)
            tx.after_commit(lambda: SHARED.inc(len(ids)))
        return len(held)


async def report(
    connection: asyncpg.Connection, book: PriceBook, first: date, last: date, now: datetime
) -> tuple[Row, ...]:
    """Every share of these days (UTC), idle time included, up to now."""
    starts_at = datetime.combine(first, time(), UTC)
    ends_at = min(datetime.combine(last, time(), UTC) + timedelta(days=1), now)
    whole: dict[PoolDay, Amount] = defaultdict(Amount)
    for offer in await store_pools.offers(connection, starts_at, ends_at):
        for key, amount in offered(offer, book).items():
            whole[key].slot_microseconds += amount.slot_microseconds
            whole[key].micro_usd += amount.micro_usd
    held = list(await store_pools.shares(connection, first, last))
    recent = await store_pools.unshared(connection, MAX_UNSHARED, now)
    held += [row for row in _shares(recent, book) if first <= row.of.day <= last]
    return rows(dict(whole), _merged(held))


def _shares(held: Sequence[HeldUsage], book: PriceBook) -> list[Row]:
    found = []
    for each in held:
        usage = each.usage
        for key, amount in by_day_and_phase(usage, each.run, book).items():
            of = PoolDay(key.day, usage.pool, usage.device_type)
            tenant_id = "" if key.phase is Phase.PLATFORM else each.tenant_id
            found.append(
                Row(of, key.phase.value, tenant_id, amount.slot_microseconds, amount.micro_usd)
            )
    return found


def _merged(held: Sequence[Row]) -> list[Row]:
    """One row per pool, day, tenant and kind."""
    sums: dict[tuple[PoolDay, str, str], Amount] = defaultdict(Amount)
    for row in held:
        amount = sums[row.of, row.kind, row.tenant_id]
        amount.slot_microseconds += row.slot_microseconds
        amount.micro_usd += row.micro_usd
    return [
        Row(of, kind, tenant_id, amount.slot_microseconds, amount.micro_usd)
        for (of, kind, tenant_id), amount in sums.items()
    ]
