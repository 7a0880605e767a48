"""The statements of the cost service: one function each, no rules."""

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, cast

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.charges import ChargeRecorded
from services.cost.core.charges import Usage
from services.cost.core.prices import UNPRICED

_PUT_ALLOCATION = """
insert into allocations
    (allocation_id, tenant_id, job_id, pool, device_type, num_slots, granted_at, released_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (allocation_id) do update set
    released_at = coalesce(excluded.released_at, allocations.released_at)
"""
_INSERT_CHARGE = """
insert into charges
    (charge_id, tenant_id, job_id, run_id, attempt, allocation_id, pool, device_type, num_slots,
     starts_at, ends_at, price_id, price_micro_usd_per_slot_hour, amount_micro_usd)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
"""
_CHARGED_TO_JOB = "select coalesce(sum(amount_micro_usd), 0)::bigint from charges where job_id = $1"
_CHARGED_TO_TENANT = (
    "select coalesce(sum(amount_micro_usd), 0)::bigint from charges where tenant_id = $1"
)
_UNPRICED_OF_JOB = """
select distinct pool, device_type from charges where price_id = $2 and job_id = $1
"""
_UNPRICED_OF_TENANT = """
select distinct pool, device_type from charges where price_id = $2 and tenant_id = $1
"""
_OPEN = """
select allocation_id, pool, device_type, num_slots, granted_at, clock_timestamp() as now
from allocations where released_at is null and {column} = $1 order by allocation_id
"""
_OPEN_OF_JOB = _OPEN.format(column="job_id")
_OPEN_OF_TENANT = _OPEN.format(column="tenant_id")


async def put_allocation(
    connection: asyncpg.Connection,
    allocation: AllocationGranted | AllocationReleased,
    released_at: datetime | None,
) -> None:
    """Grant and release may come in either order; a release is never taken back."""
    await connection.execute(
        _PUT_ALLOCATION,
        allocation.allocation_id,
        allocation.tenant_id,
        allocation.job_id,
        allocation.pool,
        allocation.device_type,
        len(allocation.slots),
        allocation.granted_at,
        released_at,
    )


async def insert_charge(connection: asyncpg.Connection, charge: ChargeRecorded) -> None:
    await connection.execute(
        _INSERT_CHARGE,
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
    )


def one_moment(connection: asyncpg.Connection) -> AbstractAsyncContextManager[Any]:
    """Reads inside it see one state: a release is charged or open in it, never neither."""
    return connection.transaction(isolation="repeatable_read", readonly=True)


async def charged_to_job(connection: asyncpg.Connection, job_id: str) -> int:
    return cast(int, await connection.fetchval(_CHARGED_TO_JOB, job_id))


async def charged_to_tenant(connection: asyncpg.Connection, tenant_id: str) -> int:
    return cast(int, await connection.fetchval(_CHARGED_TO_TENANT, tenant_id))


async def unpriced_of_job(connection: asyncpg.Connection, job_id: str) -> set[tuple[str, str]]:
    """The pools and device types that were charged nothing, because no price covered them."""
    rows = await connection.fetch(_UNPRICED_OF_JOB, job_id, UNPRICED)
    return {(row["pool"], row["device_type"]) for row in rows}


async def unpriced_of_tenant(
    connection: asyncpg.Connection, tenant_id: str
) -> set[tuple[str, str]]:
    rows = await connection.fetch(_UNPRICED_OF_TENANT, tenant_id, UNPRICED)
    return {(row["pool"], row["device_type"]) for row in rows}


async def open_usages_of_job(connection: asyncpg.Connection, job_id: str) -> tuple[Usage, ...]:
    """What the job holds now, from its grant to this moment of the database's clock."""
    return tuple(_usage(row) for row in await connection.fetch(_OPEN_OF_JOB, job_id))


async def open_usages_of_tenant(
    connection: asyncpg.Connection, tenant_id: str
) -> tuple[Usage, ...]:
    return tuple(_usage(row) for row in await connection.fetch(_OPEN_OF_TENANT, tenant_id))


def _usage(row: asyncpg.Record) -> Usage:
    return Usage(
        allocation_id=row["allocation_id"],
        pool=row["pool"],
        device_type=row["device_type"],
        num_slots=row["num_slots"],
        starts_at=row["granted_at"],
        ends_at=max(row["granted_at"], row["now"]),
    )
