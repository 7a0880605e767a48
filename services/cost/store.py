"""The statements of the cost service: one function each, no rules."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.charges import ChargeRecorded
from services.cost import store_accrual
from services.cost.core.charges import Usage, by_capacity
from services.cost.core.prices import UNPRICED
from services.cost.store_accrual import PAID_UNTIL

Of = Literal["job", "tenant"]
# Of `charges`: those that apply. They are not reversed, and are no reversals.
IN_FORCE = """reverses_charge_id is null and not exists (
    select from charges as reversal where reversal.reverses_charge_id = charges.charge_id)"""
# Of the contract: the columns have their names.
_FIELDS = tuple(name for name in ChargeRecorded.model_fields if name != "platform_micro_usd")
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
         reverses_charge_id, platform_ends_at, is_spot, platform_micro_usd, correction)
    select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[],
        $6::text[], $7::text[], $8::text[], $9::integer[], $10::timestamptz[], $11::timestamptz[],
        $12::text[], $13::bigint[], $14::bigint[], $15::text[], $16::timestamptz[], $17::boolean[],
        $18::bigint[], $19::integer[])
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
        from new where price_id = $20
        group by tenant_id, pool, device_type order by tenant_id, pool, device_type
    on conflict (tenant_id, pool, device_type) do update set
        num_charges = unpriced_use.num_charges + excluded.num_charges
)
select charge_id from new
"""
_CHARGED = "select distinct allocation_id from charges where allocation_id = any($1)"
_CHARGED_TO: Mapping[Of, str] = {
    "job": """
select coalesce(sum(amount_micro_usd), 0)::bigint as charged,
    coalesce(sum(platform_micro_usd), 0)::bigint as platform
from charges where job_id = $1
""",
    "tenant": """
select coalesce(sum(charged_micro_usd), 0)::bigint as charged,
    coalesce(sum(platform_micro_usd), 0)::bigint as platform
from spend_by_day where tenant_id = $1
""",
}
_UNPRICED_OF: Mapping[Of, str] = {
    "job": """
select pool, device_type from charges where price_id = 'unpriced' and job_id = $1
group by pool, device_type having sum(case when reverses_charge_id is null then 1 else -1 end) > 0
""",
    "tenant": """
select pool, device_type from unpriced_use where tenant_id = $1 and num_charges > 0
""",
}
_OPEN = f"""
select allocation_id, pool, device_type, num_slots, num_spot_slots, granted_at,
    least(clock_timestamp(), {PAID_UNTIL}) as now
from allocations left join run_facts using (run_id)
where released_at is null and {{column}} = $1 order by allocation_id
"""
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
        (*(getattr(charge, name) for name in _FIELDS), charge.platform_micro_usd or 0, correction)
        for charge in charges
    ]
    found = await connection.fetch(_INSERT_CHARGES, *_columns(rows), UNPRICED)
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


async def charged_to(connection: asyncpg.Connection, of: Of, subject_id: str) -> Charged:
    row: Any = await connection.fetchrow(_CHARGED_TO[of], subject_id)
    return Charged(row["charged"], row["platform"])


async def unpriced_of(
    connection: asyncpg.Connection, of: Of, subject_id: str
) -> set[tuple[str, str]]:
    """The pools and device types that were charged nothing, because no price covered them."""
    rows = await connection.fetch(_UNPRICED_OF[of], subject_id)
    return {(row["pool"], row["device_type"]) for row in rows}


async def open_usages_of(
    connection: asyncpg.Connection, of: Of, subject_id: str
) -> tuple[Usage, ...]:
    """What is held now, from its grant to when it is paid: at most the database's now."""
    rows = await connection.fetch(_OPEN.format(column=f"{of}_id"), subject_id)
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


def _charge(row: asyncpg.Record) -> ChargeRecorded:
    platform = None if row["platform_ends_at"] is None else row["platform_micro_usd"]
    return ChargeRecorded(**{name: row[name] for name in _FIELDS}, platform_micro_usd=platform)
