"""The chargeback report: lines by day, pool, kind and what is asked for, in constant memory."""

from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

import asyncpg

from services.cost import pools, store_offers, store_pools
from services.cost.core.chargeback import Capacity, Line, Report
from services.cost.core.phases import Amount
from services.cost.core.pools import UNOFFERED, PoolTime, Row, offered
from services.cost.core.prices import PriceBook
from services.cost.core.steps import Steps, days
from services.cost.store_pools import HeldUsage

# What other tenants had is one line: their jobs are not the caller's business.
OTHERS = "others"


class By(StrEnum):
    """What a line is of; a line of a job names its study and project as well."""

    TENANT = "tenant"
    PROJECT = "project"
    STUDY = "study"
    JOB = "job"


_COLUMNS: Mapping[By, tuple[str, ...]] = {
    By.TENANT: (),
    By.PROJECT: ("project",),
    By.STUDY: ("project", "study_id"),
    By.JOB: ("project", "study_id", "job_id", "name"),
}
_LINES = """
select day, pool, device_type, kind,
    case when tenant_id in ('', $3) then tenant_id else 'others' end as tenant_id,
    {columns}, capacity,
    sum(part.slot_microseconds) as slot_microseconds, sum(part.micro_usd) as micro_usd
from job_shares as of_all
    left join (select * from job_spot_shares where day between $1 and $2) as of_spot
        using (day, pool, device_type, tenant_id, job_id, kind)
    left join jobs using (job_id),
    lateral (values
        ('on_demand', of_all.slot_microseconds - coalesce(of_spot.slot_microseconds, 0),
            of_all.micro_usd - coalesce(of_spot.micro_usd, 0)),
        ('spot', of_spot.slot_microseconds, of_spot.micro_usd))
        as part (capacity, slot_microseconds, micro_usd)
where day between $1 and $2 and kind <> 'unoffered'
    and (part.slot_microseconds <> 0 or part.micro_usd <> 0)
group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 order by 1, 2, 3, 5, 8, 4, 6, 7, 9, 10
"""


_STORAGE = """
select day, case when tenant_id = $3 then tenant_id else 'others' end as tenant_id,
    {columns},
    sum(byte_microseconds) as byte_microseconds, sum(amount_micro_usd) as micro_usd
from storage_charges left join jobs using (job_id)
where day between $1 and $2
group by 1, 2, 3, 4, 5, 6 order by 1, 2, 5, 3, 4, 6
"""
STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class Ask:
    """The days (UTC) from `first` to `last`, as this tenant sees them."""

    tenant_id: str
    first: date
    last: date
    by: By


async def lines(
    connection: asyncpg.Connection, book: PriceBook, ask: Ask, now: datetime
) -> AsyncIterator[tuple[Line, Amount]]:
    """In the order of days. The connection is in one moment until the last line was read."""
    steps = days(ask.first, ask.last)
    whole = await _whole(connection, book, steps, now)
    live: dict[Line, Amount] = defaultdict(Amount)
    async for held, of_held in pools.unshared(connection, book, steps, now):
        for row in pools.rows_of(held, of_held):
            if row.kind == UNOFFERED:
                whole[row.of, _capacity(row)].add(row.slot_microseconds, row.micro_usd)
            else:
                line = _line(row, ask, held)
                live[line].add(row.slot_microseconds, row.micro_usd)
    report = Report(whole, live)
    async for found in _rows(connection, _LINES, ask):
        amount = Amount(int(found["slot_microseconds"]), int(found["micro_usd"]))
        for each in report.add(_stored(found), amount):
            yield each
    for each in report.end():
        yield each


async def _whole(
    connection: asyncpg.Connection, book: PriceBook, steps: Steps, now: datetime
) -> dict[tuple[PoolTime, Capacity], Amount]:
    """What was offered, and what was shared out beyond that."""
    whole: dict[tuple[PoolTime, Capacity], Amount] = defaultdict(Amount)
    offers = await store_offers.offers(connection, steps.starts_at, min(steps.ends_at, now))
    for capacity in (Capacity.ON_DEMAND, Capacity.SPOT):
        is_spot = capacity is Capacity.SPOT
        of_capacity = (offer for offer in offers if offer.is_spot is is_spot)
        for of, amount in offered(of_capacity, book, steps).items():
            whole[of, capacity] = amount
    first, last = steps.starts_at.date(), (steps.ends_at - timedelta(days=1)).date()
    for row in await store_pools.shares(connection, first, last, UNOFFERED):
        whole[row.of, Capacity.ON_DEMAND].add(row.slot_microseconds, row.micro_usd)
    for row in await store_pools.shares(connection, first, last, UNOFFERED, is_spot=True):
        whole[row.of, Capacity.SPOT].add(row.slot_microseconds, row.micro_usd)
        whole[row.of, Capacity.ON_DEMAND].add(-row.slot_microseconds, -row.micro_usd)
    return whole


async def storage_lines(
    connection: asyncpg.Connection, ask: Ask
) -> AsyncIterator[tuple[Line, int, int]]:
    """What stored checkpoints were charged: bytes x microseconds, and micro-dollars."""
    async for row in _rows(connection, _STORAGE, ask):
        of_storage = {"pool": "", "device_type": "", "kind": STORAGE, "capacity": ""}
        line = _stored({**row, **of_storage})
        yield line, int(row["byte_microseconds"]), int(row["micro_usd"])


def _rows(connection: asyncpg.Connection, statement: str, ask: Ask) -> AsyncIterable[Any]:
    columns = ", ".join(
        f"case when tenant_id = $3 then coalesce({name}, '') else '' end as {name}"
        if name in _COLUMNS[ask.by]
        else f"'' as {name}"
        for name in _COLUMNS[By.JOB]
    )
    text = statement.format(columns=columns)
    cursor: AsyncIterable[Any] = connection.cursor(
        text, ask.first, ask.last, ask.tenant_id, prefetch=500
    )
    return cursor


def _capacity(row: Row) -> Capacity:
    return Capacity.SPOT if row.is_spot else Capacity.ON_DEMAND


def _line(row: Row, ask: Ask, held: HeldUsage) -> Line:
    tenant_id = row.tenant_id if row.tenant_id in ("", ask.tenant_id) else OTHERS
    columns = _COLUMNS[ask.by] if tenant_id == ask.tenant_id else ()
    known = (held.project, held.study_id, held.job_id, held.job_name)
    named = zip(_COLUMNS[By.JOB], known, strict=True)
    shown = (value if name in columns else "" for name, value in named)
    return Line(row.of, row.kind, _capacity(row), tenant_id, *shown)


def _stored(row: Any) -> Line:
    return Line(
        PoolTime.of_day(row["day"], row["pool"], row["device_type"]),
        row["kind"],
        Capacity(row["capacity"]),
        row["tenant_id"],
        *(row[name] for name in _COLUMNS[By.JOB]),
    )
