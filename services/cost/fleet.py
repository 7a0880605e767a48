"""Reads who had the slots over time: from the tables of shares, and from what is held now."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from services.cost import pools
from services.cost.core.fleet import (
    HELD,
    MAX_HOLDERS,
    By,
    Holder,
    Of,
    Points,
    Series,
    View,
    series,
)
from services.cost.core.phases import Amount, Phase
from services.cost.core.pools import UNOFFERED
from services.cost.core.prices import PriceBook
from services.cost.core.steps import Steps
from services.cost.store_pools import TABLES, HeldUsage

_HOLDER = {
    By.USE: "''",
    By.TENANT: "tenant_id",
    By.PROJECT: "coalesce(project, '')",
    By.JOB: "job_id",
}
# What is told of a holder's time: whether it had it.
_NOT_BY_USE = f"case when kind in ('{UNOFFERED}', '{Phase.PLATFORM}') then kind else '{HELD}' end"
_RANGE = "{column} >= {first} and {column} < {last} and ($3::text is null or pool = $3)"
_LARGEST = """
select holder from (
    select {holder} as holder, sum(slot_microseconds) as time from {source}
    where {range} and tenant_id = $4 group by 1
    union all select * from unnest($5::text[], $6::numeric[])
) as found group by holder order by sum(time) desc, holder limit $7
"""
_SHARES = """
select starts_at, pool, device_type, use,
    case when is_shown then tenant_id else '' end as tenant_id,
    case when is_shown then holder else '' end as holder,
    sum(slot_microseconds) as slot_microseconds, sum(micro_usd) as micro_usd
from (
    select *, {begin} as starts_at, {holder} as holder, {use} as use,
        tenant_id = $4 and {holder} = any($5) as is_shown
    from {source} where {range}
) as shares group by 1, 2, 3, 4, 5, 6
"""


@dataclass(frozen=True, slots=True)
class Ask:
    """As this tenant sees it; `pool` None is every pool."""

    tenant_id: str
    steps: Steps
    by: By
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """`pools`: every pool that there was, also where one was asked for; `names`: of jobs."""

    pools: Sequence[str]
    series: Sequence[tuple[Of, Series]]
    names: Mapping[str, str]


async def fleet(connection: asyncpg.Connection, book: PriceBook, ask: Ask, now: datetime) -> Found:
    """The connection is in one moment until it returns."""
    offered = await pools.offered_in(connection, book, ask.steps, now)
    whole = {at: each for at, each in offered.items() if ask.pool in (None, at.pool)}
    live = await _live(connection, book, ask, now)
    holders = [] if ask.by is By.USE else await _largest(connection, ask, live)
    held = [*live.items(), *(await _stored(connection, ask, holders)).items()]
    found = series(whole, held, View(ask.by, ask.tenant_id, holders))
    names = {at.pool for at in offered} | {key.pool for key, _ in found}
    return Found(sorted(names), found, await _names(connection, ask, holders))


async def _live(
    connection: asyncpg.Connection, book: PriceBook, ask: Ask, now: datetime
) -> dict[Holder, Points]:
    """What is held now, or was released lately."""
    found: dict[Holder, Points] = defaultdict(dict)
    async for held, shares in pools.unshared(connection, book, ask.steps, now):
        if ask.pool not in (None, held.usage.pool):
            continue
        points = found[_holder(held, ask.by)]
        for begin, kind, time, money in shares:
            points.setdefault((begin, kind), Amount()).add(time, money)
    return found


def _holder(held: HeldUsage, by: By) -> Holder:
    pool, device_type, tenant_id = held.usage.pool, held.usage.device_type, held.tenant_id
    match by:
        case By.USE:
            return Holder(pool, device_type, "", "")
        case By.TENANT:
            return Holder(pool, device_type, tenant_id, tenant_id)
        case By.PROJECT:
            return Holder(pool, device_type, tenant_id, held.project)
        case By.JOB:
            return Holder(pool, device_type, tenant_id, held.job_id)


async def _largest(
    connection: asyncpg.Connection, ask: Ask, live: Mapping[Holder, Points]
) -> Sequence[str]:
    """The tenant's own holders with the most time."""
    times: dict[str, int] = defaultdict(int)
    for who, points in live.items():
        if who.tenant_id == ask.tenant_id:
            times[who.holder] += sum(amount.slot_microseconds for amount in points.values())
    rows = await connection.fetch(
        _statement(_LARGEST, ask), *_range(ask), list(times), list(times.values()), MAX_HOLDERS
    )
    return [row["holder"] for row in rows]


async def _stored(
    connection: asyncpg.Connection, ask: Ask, holders: Sequence[str]
) -> dict[Holder, Points]:
    """What was shared out."""
    found: dict[Holder, Points] = defaultdict(dict)
    for row in await connection.fetch(_statement(_SHARES, ask), *_range(ask), list(holders)):
        who = Holder(row["pool"], row["device_type"], row["tenant_id"], row["holder"])
        amount = Amount(int(row["slot_microseconds"]), int(row["micro_usd"]))
        found[who][row["starts_at"], row["use"]] = amount
    return found


def _statement(text: str, ask: Ask) -> str:
    tables = TABLES[ask.steps.step]
    is_of_job = ask.by in (By.PROJECT, By.JOB)
    return text.format(
        source=f"{tables.jobs} left join jobs using (job_id)" if is_of_job else tables.pools,
        holder=_HOLDER[ask.by],
        use="kind" if ask.by is By.USE else _NOT_BY_USE,
        begin=tables.begin,
        range=_RANGE.format(
            column=tables.column,
            first=tables.key.format("$1::timestamptz"),
            last=tables.key.format("$2::timestamptz"),
        ),
    )


def _range(ask: Ask) -> tuple[datetime, datetime, str | None, str]:
    return ask.steps.starts_at, ask.steps.ends_at, ask.pool, ask.tenant_id


async def _names(
    connection: asyncpg.Connection, ask: Ask, holders: Sequence[str]
) -> Mapping[str, str]:
    if ask.by is not By.JOB:
        return {}
    rows = await connection.fetch(
        "select job_id, name from jobs where job_id = any($1) and name is not null", holders
    )
    return {row["job_id"]: row["name"] for row in rows}
