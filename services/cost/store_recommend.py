"""The statements about what jobs could have cost less; no rules."""

from datetime import date, datetime, timedelta

import asyncpg

from services.cost.core.fewer_devices import Done
from services.cost.core.prices import PriceBook, SlotKind
from services.cost.core.recommendations import JobShares
from services.cost.core.spot_nodes import Lost, OnDemand, SpotPool
from services.cost.core.steps import midnight
from services.cost.store import IN_FORCE

MAX_DONE = 1000  # the newest
_KINDS = ("productive", "checkpointing", "starting", "lost")
_SUMS = ", ".join(
    f"coalesce(sum(micro_usd) filter (where kind = '{kind}'), 0)::bigint as {kind}"
    for kind in _KINDS
)
# The jobs that saved, or lost, the most: others could not save more.
_JOBS = f"""
with of_job as (
    select job_id, {_SUMS} from job_shares
    where tenant_id = $1 and job_id <> '' and day between $2 and $3 group by job_id)
select of_job.*, name from (
    (select * from of_job order by checkpointing desc, job_id limit $4)
    union (select * from of_job order by lost desc, job_id limit $4)) as of_job
    left join jobs using (job_id)
order by job_id
"""
# Of jobs whose slots were all of one kind. An allocation has a charge for each price.
_DONE = f"""
with done as (
    select job_id, name, command, succeeded_at from jobs
    where of_tenant = $1 and succeeded_at >= $2 and succeeded_at < $3 and command is not null
    order by succeeded_at desc limit $4),
net as (
    select charges.*, hours * num_slots * price_micro_usd_per_slot_hour as paid
    from done join charges using (job_id),
        lateral (select extract(epoch from ends_at - starts_at) / 3600 as hours) as held
    where {IN_FORCE}),
of_allocation as (
    select job_id, pool, device_type, is_spot, num_slots, sum(paid) as paid,
        extract(epoch from max(ends_at) - min(starts_at)) as seconds
    from net group by job_id, allocation_id, pool, device_type, is_spot, num_slots),
of_job as (
    select job_id, min(pool) as pool, min(device_type) as device_type,
        bool_and(is_spot) as is_spot, min(num_slots) as num_slots,
        sum(paid)::bigint as micro_usd, sum(seconds)::float8 as seconds
    from of_allocation group by job_id
    having count(distinct (pool, device_type, is_spot, num_slots)) = 1)
select job_id, name, command, pool, device_type, is_spot, num_slots, micro_usd, seconds
from done join of_job using (job_id)
order by succeeded_at, job_id
"""
# The jobs that cost the most on these days, of those that save checkpoints.
_ON_DEMAND = f"""
with dearest as (
    select job_id, sum(micro_usd) as micro_usd from job_shares
    where tenant_id = $1 and job_id <> '' and day between $2 and $3
        and exists (select from stored_checkpoints
            where stored_checkpoints.job_id = job_shares.job_id)
    group by job_id order by 2 desc, job_id limit $6),
paid as (
    select job_id, device_type, num_slots, price_micro_usd_per_slot_hour as price,
        extract(epoch from least(ends_at, $5) - greatest(starts_at, $4)) as seconds
    from dearest join charges using (job_id)
    where not is_spot and {IN_FORCE})
select job_id, name, device_type, max(num_slots) as num_slots,
    sum(seconds * num_slots * 1000000)::bigint as slot_time,
    floor(sum(seconds * num_slots * price / 3600))::bigint as micro_usd
from paid left join jobs using (job_id) where seconds > 0
group by job_id, name, device_type order by job_id, device_type
"""
_SPOT_POOLS = """
select pool, device_type, sum(num_slots)::bigint as num_slots
from node_offers where ends_at is null
group by pool, device_type having bool_and(is_spot) order by pool, device_type
"""
LOST = """
select device_type, sum(micro_usd)::bigint as micro_usd,
    coalesce(sum(micro_usd) filter (where kind = 'lost'), 0)::bigint as lost
from pool_spot_shares
where day between $1 and $2 and kind in ('productive', 'checkpointing', 'lost')
group by device_type order by device_type
"""


def _end_of(day: date) -> datetime:
    return midnight(day + timedelta(days=1))


async def jobs(
    connection: asyncpg.Connection, tenant_id: str, first: date, last: date, limit: int
) -> list[JobShares]:
    rows = await connection.fetch(_JOBS, tenant_id, first, last, limit)
    return [JobShares(row["job_id"], row["name"], *(row[kind] for kind in _KINDS)) for row in rows]


async def done(
    connection: asyncpg.Connection, tenant_id: str, first: date, last: date
) -> list[Done]:
    """Jobs that succeeded on these days, and whose attempts all had as many slots of one kind."""
    rows = await connection.fetch(_DONE, tenant_id, midnight(first), _end_of(last), MAX_DONE)
    return [
        Done(
            row["job_id"],
            row["name"],
            row["command"],
            SlotKind(row["pool"], row["device_type"], row["is_spot"]),
            row["num_slots"],
            row["micro_usd"],
            row["seconds"],
        )
        for row in rows
    ]


async def on_demand(
    connection: asyncpg.Connection, tenant_id: str, first: date, last: date, limit: int
) -> list[OnDemand]:
    rows = await connection.fetch(
        _ON_DEMAND, tenant_id, first, last, midnight(first), _end_of(last), limit
    )
    return [OnDemand(*row.values()) for row in rows]


async def spot_pools(
    connection: asyncpg.Connection, book: PriceBook, moment: datetime
) -> list[SpotPool]:
    """Those with a price at this moment."""
    found = []
    for row in await connection.fetch(_SPOT_POOLS):
        kind = SlotKind(row["pool"], row["device_type"], is_spot=True)
        price = book.price_at(kind, moment)
        if price is not None:
            cost = price.micro_usd_per_slot_hour
            found.append(SpotPool(kind.pool, kind.device_type, row["num_slots"], cost))
    return found


async def lost_on_spot(connection: asyncpg.Connection, first: date, last: date) -> list[Lost]:
    """Of all tenants together."""
    rows = await connection.fetch(LOST, first, last)
    return [Lost(*row.values()) for row in rows]
