"""The shares of every pool's day: what events tell, the task that adds them up, and the report.

An allocation is shared out some minutes after its release was read, once, so that a checkpoint that
was verified late still counts, and so does what other topics tell when they are read after an
outage; until then the report works it out anew.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import asyncpg

from drivetrain_schemas.charges import ChargeRecorded
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
    RunUnreachable,
)
from services.cost import store_accrual, store_pools
from services.cost.core.charges import Usage
from services.cost.core.phases import Amount, Phase, RunFacts, by_day_and_phase
from services.cost.core.pools import UNOFFERED, Offer, PoolDay, Row, offered, rows, unoffered
from services.cost.core.prices import Period, PriceBook
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
    RunUnreachable,
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
        case RunUnreachable(run_id=run_id, node_ids=node_ids):
            await store_accrual.note_unreachable(tx.connection, run_id, node_ids, event.occurred_at)
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
            await store_pools.add_shares(
                tx.connection, await _shares(tx.connection, held, self._book)
            )
            await store_pools.mark_shared(tx.connection, ids)
            tx.after_commit(lambda: SHARED.inc(len(ids)))
        return len(held)


async def report(
    connection: asyncpg.Connection, book: PriceBook, first: date, last: date, now: datetime
) -> tuple[Row, ...]:
    """Every share of these days (UTC), idle time included, up to now."""
    whole = await offered_by_day(connection, book, first, last, now)
    held = list(await store_pools.shares(connection, first, last))
    async for row in unshared(connection, book, now):
        if first <= row.of.day <= last:
            held.append(row)
    return rows(whole, _merged(held))


async def offered_by_day(
    connection: asyncpg.Connection, book: PriceBook, first: date, last: date, now: datetime
) -> dict[PoolDay, Amount]:
    """What the nodes of each pool offered in these days, up to now."""
    starts_at = datetime.combine(first, time(), UTC)
    ends_at = min(datetime.combine(last, time(), UTC) + timedelta(days=1), now)
    whole: dict[PoolDay, Amount] = defaultdict(Amount)
    for offer in await store_pools.offers(connection, starts_at, ends_at):
        for key, amount in offered(offer, book).items():
            whole[key].slot_microseconds += amount.slot_microseconds
            whole[key].micro_usd += amount.micro_usd
    return whole


async def unshared(
    connection: asyncpg.Connection, book: PriceBook, now: datetime
) -> AsyncIterator[Row]:
    """The shares of what is held now or was released lately, in steps."""
    after = ""
    while held := await store_pools.unshared(connection, after, BATCH, now):
        for row in await _shares(connection, held, book):
            yield row
        after = held[-1].allocation_id


async def _shares(
    connection: asyncpg.Connection, held: Sequence[HeldUsage], book: PriceBook
) -> list[Row]:
    """At the prices of the charges, where there are any, and at those of now for what is open."""
    if not held:
        return []
    nodes = {node for each in held for node in each.node_slots}
    since = min(each.usage.starts_at for each in held)
    offers = await store_pools.offers_of(connection, nodes, since)
    found: list[Row] = []
    for each in held:
        usage = each.usage
        found += _shares_of(each, each.periods or _periods(usage, book))
        for node, num_slots in each.node_slots.items():
            whole = Offer(usage.pool, usage.device_type, num_slots, usage.starts_at, usage.ends_at)
            for excess in unoffered(whole, offers.get(node, ())):
                for of, amount in offered(excess, book).items():
                    found.append(Row(of, UNOFFERED, "", amount.slot_microseconds, amount.micro_usd))
    return found


def _shares_of(held: HeldUsage, periods: Iterable[Period]) -> Iterator[Row]:
    """By day and kind, at the prices of these periods."""
    usage = held.usage
    for key, amount in by_day_and_phase(usage, held.run, periods).items():
        is_platform = key.phase is Phase.PLATFORM
        yield Row(
            PoolDay(key.day, usage.pool, usage.device_type),
            key.phase.value,
            "" if is_platform else held.tenant_id,
            amount.slot_microseconds,
            amount.micro_usd,
            "" if is_platform else held.job_id,
        )


async def reprice(
    connection: asyncpg.Connection, charge: ChargeRecorded, new: Sequence[ChargeRecorded]
) -> None:
    """Give the shares of a charge that was reversed the prices of those that replace it."""
    held = await store_pools.lock(connection, charge.allocation_id)
    if held is None:
        held = _deleted(charge)
    elif not held.is_shared:
        return  # later, by its charges
    back = [
        replace(row, slot_microseconds=-row.slot_microseconds, micro_usd=-row.micro_usd)
        for row in _shares_of(held, [_period(charge)])
    ]
    await store_pools.add_shares(connection, [*back, *_shares_of(held, map(_period, new))])


def _deleted(charge: ChargeRecorded) -> HeldUsage:
    """The allocation of a charge, when nothing is known any more of what its run did."""
    usage = Usage(
        charge.allocation_id,
        charge.pool,
        charge.device_type,
        charge.num_slots,
        charge.starts_at,
        charge.ends_at,
        charge.platform_ends_at or charge.ends_at,
    )
    run = RunFacts(started_at=charge.starts_at)
    return HeldUsage(charge.allocation_id, charge.tenant_id, charge.job_id, usage, run, (), {})


def _period(charge: ChargeRecorded) -> Period:
    return Period(
        charge.starts_at,
        charge.platform_ends_at or charge.ends_at,
        charge.price_id,
        charge.price_micro_usd_per_slot_hour,
    )


def _periods(usage: Usage, book: PriceBook) -> tuple[Period, ...]:
    return book.periods(usage.pool, usage.device_type, usage.starts_at, usage.ends_at)


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
