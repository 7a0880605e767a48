"""The statements of the cost service: one function each, no rules."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.charges import ChargeRecorded
from services.cost import store_accrual
from services.cost.core.charges import Usage, by_capacity
from services.cost.core.prices import UNPRICED
from services.cost.store_accrual import PAID_UNTIL

# Of `charges`: those that apply. They are not reversed, and are no reversals.
IN_FORCE = """reverses_charge_id is null and not exists (
    select from charges as reversal where reversal.reverses_charge_id = charges.charge_id)"""
_PUT_ALLOCATIONS = """
insert into allocations
    (allocation_id, tenant_id, job_id, pool, device_type, num_slots, granted_at, released_at,
     paid_ends_at, run_id, num_spot_slots, spot_slots, slot_numbers, release_noted_at)
select *, case when released_at is not null then clock_timestamp() end
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[],
    $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::text[], $11::integer[],
    $12::jsonb[], $13::jsonb[])
    as told (allocation_id, tenant_id, job_id, pool, device_type, num_slots, granted_at,
        released_at, paid_ends_at, run_id, num_spot_slots, spot_slots, slot_numbers)
on conflict (allocation_id) do update set
    released_at = coalesce(excluded.released_at, allocations.released_at),
    paid_ends_at = coalesce(excluded.paid_ends_at, allocations.paid_ends_at),
    release_noted_at = coalesce(allocations.release_noted_at, excluded.release_noted_at)
"""
# The same statement updates the totals: a charge counts once, or not at all.
_INSERT_CHARGES = """
with new as (
    insert into charges
        (charge_id, tenant_id, job_id, run_id, attempt, allocation_id, pool, device_type,
         num_slots, starts_at, ends_at, price_id, price_micro_usd_per_slot_hour, amount_micro_usd,
         reverses_charge_id, platform_ends_at, platform_micro_usd, correction, is_spot)
    select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[],
        $6::text[], $7::text[], $8::text[], $9::integer[], $10::timestamptz[], $11::timestamptz[],
        $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::timestamptz[], $17::bigint[],
        $18::integer[], $20::boolean[])
    on conflict (charge_id) do nothing returning *
), by_day as (
    insert into spend_by_day
        select tenant_id, (ends_at at time zone 'UTC')::date as day,
            sum(amount_micro_usd)::bigint, sum(platform_micro_usd)::bigint
        from new group by tenant_id, day order by tenant_id, day
    on conflict (tenant_id, day) do update set
        charged_micro_usd = spend_by_day.charged_micro_usd + excluded.charged_micro_usd,
        platform_micro_usd = spend_by_day.platform_micro_usd + excluded.platform_micro_usd
), unpriced as (
    insert into unpriced_use
        select tenant_id, pool, device_type,
            sum(case when reverses_charge_id is null then 1 else -1 end)
        from new where price_id = $19
        group by tenant_id, pool, device_type order by tenant_id, pool, device_type
    on conflict (tenant_id, pool, device_type) do update set
        num_charges = unpriced_use.num_charges + excluded.num_charges
)
select charge_id from new
"""
_CHARGED = "select distinct allocation_id from charges where allocation_id = any($1)"
CHARGED_TO_JOB = """
select coalesce(sum(amount_micro_usd), 0)::bigint as charged,
    coalesce(sum(platform_micro_usd), 0)::bigint as platform
from charges where job_id = $1
"""
CHARGED_TO_TENANT = """
select coalesce(sum(charged_micro_usd), 0)::bigint as charged,
    coalesce(sum(platform_micro_usd), 0)::bigint as platform
from spend_by_day where tenant_id = $1
"""
UNPRICED_OF_JOB = """
select pool, device_type from charges where price_id = 'unpriced' and job_id = $1
group by pool, device_type having sum(case when reverses_charge_id is null then 1 else -1 end) > 0
"""
UNPRICED_OF_TENANT = """
select pool, device_type from unpriced_use where tenant_id = $1 and num_charges > 0
"""
_OPEN = f"""
select allocation_id, pool, device_type, num_slots, num_spot_slots, granted_at,
    least(clock_timestamp(), {PAID_UNTIL}) as now
from allocations left join run_facts using (run_id)
where released_at is null and {{column}} = $1 order by allocation_id
"""
OPEN_OF_JOB = _OPEN.format(column="job_id")
OPEN_OF_TENANT = _OPEN.format(column="tenant_id")
HELD_SLOTS = f"""
select tenant_id, pool, device_type, is_spot, sum(of_capacity)::bigint as num_slots
from allocations left join run_facts using (run_id),
    lateral (values (false, num_slots - num_spot_slots), (true, num_spot_slots))
    as part (is_spot, of_capacity)
where released_at is null and {PAID_UNTIL} is null and of_capacity > 0
group by tenant_id, pool, device_type, is_spot
"""
UNPRICED_CHARGES = f"""
select * from charges where price_id = 'unpriced' and charge_id > $1 and {IN_FORCE}
order by charge_id limit $2
"""


@dataclass(frozen=True, slots=True)
class Charged:
    """What was charged, and the platform's own cost of the same slots."""

    charged_micro_usd: int
    platform_micro_usd: int


@dataclass(frozen=True, slots=True)
class HeldSlots:
    """Slots of one kind that a tenant holds and pays for now."""

    tenant_id: str
    pool: str
    device_type: str
    num_slots: int
    is_spot: bool = False


async def held_slots(connection: asyncpg.Connection) -> tuple[HeldSlots, ...]:
    return tuple(HeldSlots(**row) for row in await connection.fetch(HELD_SLOTS))


async def put_allocations(
    connection: asyncpg.Connection, allocations: Sequence[AllocationGranted | AllocationReleased]
) -> None:
    """Grant and release may arrive in either order; a release is never undone."""
    # One row of each: a statement cannot update a row twice.
    rows: dict[str, tuple[Any, ...]] = {}
    for one in allocations:
        if isinstance(one, AllocationReleased) or one.allocation_id not in rows:
            rows[one.allocation_id] = (
                one.allocation_id,
                one.tenant_id,
                one.job_id,
                one.pool,
                one.device_type,
                len(one.slots),
                one.granted_at,
                one.released_at if isinstance(one, AllocationReleased) else None,
                one.paid_ends_at if isinstance(one, AllocationReleased) else None,
                one.run_id,
                spot_slots(one).total(),
                spot_slots(one),
                _slot_numbers(one),
            )
    await connection.execute(_PUT_ALLOCATIONS, *_columns([rows[key] for key in sorted(rows)]))
    granted = [(one.job_id, one.granted_at) for one in allocations]
    await store_accrual.end_earlier(connection, granted)


def _slot_numbers(allocation: AllocationGranted | AllocationReleased) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for slot in allocation.slots:
        found[slot.node_id].append(slot.slot)
    return found


def spot_slots(allocation: AllocationGranted | AllocationReleased) -> Counter[str]:
    """How many of its slots are on each of its nodes that are spot capacity."""
    spot = frozenset(allocation.spot_nodes)
    return Counter(slot.node_id for slot in allocation.slots if slot.node_id in spot)


async def charged(connection: asyncpg.Connection, allocation_ids: Collection[str]) -> set[str]:
    """Those of these allocations that have charges."""
    rows = await connection.fetch(_CHARGED, list(allocation_ids))
    return {row["allocation_id"] for row in rows}


async def insert_charges(
    connection: asyncpg.Connection, charges: Sequence[ChargeRecorded], correction: int = 0
) -> Sequence[ChargeRecorded]:
    """Append them and add them to the totals; those that did not exist yet."""
    if not charges:
        return ()
    rows = [
        (
            charge.charge_id,
            charge.tenant_id,
            charge.job_id,
            charge.run_id,
            charge.attempt,
            charge.allocation_id,
            charge.pool,
            charge.device_type,
            charge.num_slots,
            charge.starts_at,
            charge.ends_at,
            charge.price_id,
            charge.price_micro_usd_per_slot_hour,
            charge.amount_micro_usd,
            charge.reverses_charge_id,
            charge.platform_ends_at,
            charge.platform_micro_usd or 0,
            correction,
        )
        for charge in charges
    ]
    are_spot = [charge.is_spot for charge in charges]
    found = await connection.fetch(_INSERT_CHARGES, *_columns(rows), UNPRICED, are_spot)
    ids = {row["charge_id"] for row in found}
    return [charge for charge in charges if charge.charge_id in ids]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def unpriced_charges(
    connection: asyncpg.Connection, after: str, limit: int
) -> Sequence[tuple[ChargeRecorded, int]]:
    """Charges without a price that are not replaced yet, each with its correction, by id."""
    rows = await connection.fetch(UNPRICED_CHARGES, after, limit)
    return [(_charge(row), row["correction"]) for row in rows]


def one_moment(connection: asyncpg.Connection) -> AbstractAsyncContextManager[Any]:
    """Reads inside it see one state: a release is charged or open in it, never neither."""
    return connection.transaction(isolation="repeatable_read", readonly=True)


async def now(connection: asyncpg.Connection) -> datetime:
    """The database's clock, which open allocations are priced by."""
    moment: datetime = await connection.fetchval("select clock_timestamp()")
    return moment


async def charged_to_job(connection: asyncpg.Connection, job_id: str) -> Charged:
    return _charged(await connection.fetchrow(CHARGED_TO_JOB, job_id))


async def charged_to_tenant(connection: asyncpg.Connection, tenant_id: str) -> Charged:
    return _charged(await connection.fetchrow(CHARGED_TO_TENANT, tenant_id))


async def unpriced_of_job(connection: asyncpg.Connection, job_id: str) -> set[tuple[str, str]]:
    """The pools and device types that were charged nothing, because no price covered them."""
    rows = await connection.fetch(UNPRICED_OF_JOB, job_id)
    return {(row["pool"], row["device_type"]) for row in rows}


async def unpriced_of_tenant(
    connection: asyncpg.Connection, tenant_id: str
) -> set[tuple[str, str]]:
    rows = await connection.fetch(UNPRICED_OF_TENANT, tenant_id)
    return {(row["pool"], row["device_type"]) for row in rows}


async def open_usages_of_job(connection: asyncpg.Connection, job_id: str) -> tuple[Usage, ...]:
    """What the job holds now, from its grant to when it is paid: at most the database's now."""
    rows = await connection.fetch(OPEN_OF_JOB, job_id)
    return tuple(usage for row in rows for usage in open_usages(row))


async def open_usages_of_tenant(
    connection: asyncpg.Connection, tenant_id: str
) -> tuple[Usage, ...]:
    rows = await connection.fetch(OPEN_OF_TENANT, tenant_id)
    return tuple(usage for row in rows for usage in open_usages(row))


def open_usages(row: asyncpg.Record) -> tuple[Usage, ...]:
    """What an open allocation holds, from its grant to the `now` of its row."""
    now = max(row["granted_at"], row["now"])
    whole = Usage(
        allocation_id=row["allocation_id"],
        pool=row["pool"],
        device_type=row["device_type"],
        num_slots=row["num_slots"],
        starts_at=row["granted_at"],
        paid_ends_at=now,
        ends_at=now,
    )
    return by_capacity(whole, row["num_spot_slots"])


def _charged(row: Any) -> Charged:
    return Charged(row["charged"], row["platform"])


def _charge(row: asyncpg.Record) -> ChargeRecorded:
    return ChargeRecorded(
        charge_id=row["charge_id"],
        tenant_id=row["tenant_id"],
        job_id=row["job_id"],
        run_id=row["run_id"],
        attempt=row["attempt"],
        allocation_id=row["allocation_id"],
        pool=row["pool"],
        device_type=row["device_type"],
        num_slots=row["num_slots"],
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        price_id=row["price_id"],
        price_micro_usd_per_slot_hour=row["price_micro_usd_per_slot_hour"],
        amount_micro_usd=row["amount_micro_usd"],
        reverses_charge_id=row["reverses_charge_id"],
        platform_ends_at=row["platform_ends_at"],
        platform_micro_usd=None if row["platform_ends_at"] is None else row["platform_micro_usd"],
        is_spot=row["is_spot"],
    )
