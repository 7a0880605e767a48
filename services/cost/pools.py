"""The shares of every pool's time: what events tell, the task that adds them up, and the report.

An allocation is shared out some minutes after its release was read, once, so that a checkpoint that
was verified late still counts, and so does what other topics tell when they are read after an
outage; until then the report works it out each time.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
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
    RunWaiting,
    WaitCause,
)
from services.cost import store_accrual, store_offers, store_pools
from services.cost.core.charges import Usage
from services.cost.core.corrections import usage_of
from services.cost.core.phases import Amount, Phase, RunFacts, Share, shares
from services.cost.core.pools import (
    UNOFFERED,
    Offer,
    PoolTime,
    Row,
    offered,
    rows,
    unoffered,
    unoffered_shares,
)
from services.cost.core.prices import Period, PriceBook
from services.cost.core.steps import Step, Steps, days
from services.cost.instruments import SHARED
from services.cost.store_pools import HeldUsage
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx

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
    RunWaiting,
    CheckpointCommitted,
)
# Nothing is done for the run yet. Pulling its image is, as are all parts of a start.
_UNPAID = (
    WaitCause.REFUSED,
    WaitCause.NO_ANSWER,
    WaitCause.GATED,
    WaitCause.NOT_SCHEDULED,
)


async def handle(tx: Tx, event: Event[Any]) -> None:
    """Keep the facts of nodes and runs in this event."""
    match event.payload:
        case NodeRegistered() as node:
            await store_offers.begin_offer(tx.connection, node, event.occurred_at)
        case NodeRemoved(node_id=node_id):
            await store_offers.end_offer(tx.connection, node_id, event.occurred_at)
        case RunStarted(run_id=run_id, started_at=started_at):
            await store_pools.note_started(tx.connection, run_id, started_at)
            await store_accrual.note_waiting(tx.connection, run_id, False)
        case RunWaiting(run_id=run_id, cause=cause):
            await store_accrual.note_waiting(tx.connection, run_id, cause in _UNPAID)
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
        async def work() -> None:
            while await self.share(platform, SHARE_AFTER) == BATCH:
                pass

        await repeat(work, platform.clock, SHARE_SECONDS, "released slots not shared out")

    async def share(self, platform: Platform, age: timedelta) -> int:
        """How many allocations were shared out."""
        async with platform.database.transaction() as tx:
            held = await store_pools.to_share(tx.connection, age, BATCH)
            ids = {each.allocation_id for each in held}
            for step in (Step.DAY, Step.HOUR):
                found = await _shares(tx.connection, held, self._book, Steps(step))
                rows_of_step = [row for of_held in found for row in rows_of(*of_held)]
                await store_pools.add_shares(tx.connection, rows_of_step, step)
            await store_pools.mark_shared(tx.connection, ids)
            tx.after_commit(lambda: SHARED.inc(len(ids)))
        return len(ids)


async def report(
    connection: asyncpg.Connection, book: PriceBook, first: date, last: date, now: datetime
) -> tuple[Row, ...]:
    """Every share of these days (UTC), idle time included, up to now."""
    steps = days(first, last)
    whole = await offered_in(connection, book, steps, now)
    held = list(await store_pools.shares(connection, first, last))
    async for each, of_each in unshared(connection, book, steps, now):
        held += rows_of(each, of_each)
    return rows(whole, _merged(held))


async def offered_in(
    connection: asyncpg.Connection, book: PriceBook, steps: Steps, now: datetime
) -> dict[PoolTime, Amount]:
    """What the nodes of each pool offered in these steps, up to now."""
    ends_at = min(steps.ends_at, now)
    offers = await store_offers.offers(connection, steps.starts_at, ends_at)
    return defaultdict(Amount, offered(offers, book, steps))


async def unshared(
    connection: asyncpg.Connection, book: PriceBook, steps: Steps, now: datetime
) -> AsyncIterator[tuple[HeldUsage, list[Share]]]:
    """What is held now or was released lately, with its shares in these steps."""
    after = ""
    while held := await store_pools.unshared(connection, after, BATCH, steps, now):
        for each in await _shares(connection, held, book, steps):
            yield each
        after = held[-1].allocation_id


async def _shares(
    connection: asyncpg.Connection, held: Sequence[HeldUsage], book: PriceBook, steps: Steps
) -> list[tuple[HeldUsage, list[Share]]]:
    """At the prices of the charges, where there are any, and at those of now for what is open."""
    if not held:
        return []
    nodes = {node for each in held for node in each.slot_numbers}
    since = min(each.usage.starts_at for each in held)
    offers = await store_offers.offers_of(connection, nodes, since)
    found = []
    for each in held:
        periods = each.periods or _periods(each.usage, book)
        found.append((each, _all_shares(each, offers, periods, steps)))
    return found


def _all_shares(
    held: HeldUsage,
    offers: Mapping[str, Sequence[Offer]],
    periods: Sequence[Period],
    steps: Steps,
) -> list[Share]:
    """`offers`: of the nodes on which slots are held."""
    of_run = shares(held.usage, held.run, periods, steps)
    return [*of_run, *unoffered_shares(_beyond(held, offers), periods, steps)]


def _beyond(held: HeldUsage, offers: Mapping[str, Sequence[Offer]]) -> Iterator[Offer]:
    """What was held of nodes beyond what they offered."""
    usage = held.usage
    for node, numbers in held.slot_numbers.items():
        whole = Offer(
            usage.pool,
            usage.device_type,
            len(numbers),
            usage.starts_at,
            usage.ends_at,
            usage.is_spot,
        )
        yield from unoffered(whole, numbers, offers.get(node, ()))


def rows_of(held: HeldUsage, of_held: Iterable[Share]) -> Iterator[Row]:
    for begin, kind, slot_microseconds, micro_usd in of_held:
        is_owned = kind not in (Phase.PLATFORM, UNOFFERED)
        yield Row(
            PoolTime(begin, held.usage.pool, held.usage.device_type),
            kind,
            held.tenant_id if is_owned else "",
            slot_microseconds,
            micro_usd,
            held.job_id if is_owned else "",
            held.usage.is_spot,
        )


async def reprice(
    connection: asyncpg.Connection, charge: ChargeRecorded, new: Sequence[ChargeRecorded]
) -> None:
    """Give the shares of a charge that was reversed the prices of those that replace it."""
    held = await store_pools.lock(connection, charge.allocation_id, charge.is_spot)
    if held is None:
        held = _deleted(charge)
    if not held.is_shared:
        return  # later, by its charges
    offers = await store_offers.offers_of(connection, held.slot_numbers, held.usage.starts_at)
    periods = [_period(each) for each in new]
    for step in (Step.DAY, Step.HOUR):
        steps = Steps(step)
        back = [
            replace(row, slot_microseconds=-row.slot_microseconds, micro_usd=-row.micro_usd)
            for row in rows_of(held, _all_shares(held, offers, [_period(charge)], steps))
        ]
        again = rows_of(held, _all_shares(held, offers, periods, steps))
        await store_pools.add_shares(connection, [*back, *again], step)


def _deleted(charge: ChargeRecorded) -> HeldUsage:
    """The allocation of a charge, when nothing is known any more of what its run did."""
    run = RunFacts(started_at=charge.starts_at)
    return HeldUsage(
        charge.allocation_id, charge.tenant_id, charge.job_id, usage_of(charge), run, (), {}
    )


def _period(charge: ChargeRecorded) -> Period:
    return Period(
        charge.starts_at,
        charge.platform_ends_at or charge.ends_at,
        charge.price_id,
        charge.price_micro_usd_per_slot_hour,
    )


def _periods(usage: Usage, book: PriceBook) -> tuple[Period, ...]:
    return book.periods(usage.kind, usage.starts_at, usage.ends_at)


def _merged(held: Sequence[Row]) -> list[Row]:
    """One row per pool, time, tenant and kind."""
    sums: dict[tuple[PoolTime, str, str], Amount] = defaultdict(Amount)
    for row in held:
        sums[row.of, row.kind, row.tenant_id].add(row.slot_microseconds, row.micro_usd)
    return [
        Row(of, kind, tenant_id, amount.slot_microseconds, amount.micro_usd)
        for (of, kind, tenant_id), amount in sums.items()
    ]
