"""The statements about stored checkpoints and what they are charged; no rules."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import date, datetime

import asyncpg

from drivetrain_schemas.checkpoints import CheckpointCommitted, CheckpointDeleted
from drivetrain_schemas.envelope import Event
from services.cost.store import Of

_ADD_DUE = """
insert into storage_due
    select job_id, tenant_id, min((learned_at at time zone 'UTC')::date)
    from new group by job_id, tenant_id order by job_id
on conflict (job_id) do update set
    first_day = least(storage_due.first_day, excluded.first_day)
"""
_PUT = f"""
with new as (
    insert into stored_checkpoints (checkpoint_id, tenant_id, job_id, size_bytes, stored_at)
    select * from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[])
    on conflict do nothing returning job_id, tenant_id, stored_at as learned_at)
{_ADD_DUE}
"""
_SET_DELETED = f"""
with new as (
    update stored_checkpoints set deleted_at = greatest(stored_at, told.deleted_at)
    from unnest($1::text[], $2::timestamptz[]) as told (checkpoint_id, deleted_at)
    where stored_checkpoints.checkpoint_id = told.checkpoint_id
        and stored_checkpoints.deleted_at is null
    returning job_id, tenant_id, stored_checkpoints.deleted_at as learned_at)
{_ADD_DUE}
"""
_FORGET_DUE = """
delete from storage_due
where first_day > coalesce((select max(day) from storage_days), '-infinity')
"""
_TAKE_DUE = """
delete from storage_due where job_id = (
    select job_id from storage_due order by job_id limit 1 for update skip locked)
returning *
"""
_BYTE_TIME = """
select coalesce(sum(size_bytes * extract(epoch from
    least(coalesce(deleted_at, 'infinity'), $2::timestamptz + interval '24 hours')
    - greatest(stored_at, $2)) * 1000000), 0)
from stored_checkpoints
where job_id = $1 and stored_at < $2::timestamptz + interval '24 hours'
    and (deleted_at is null or deleted_at > $2)
"""
_JOBS = """
select distinct job_id, tenant_id from stored_checkpoints
where job_id > $1 and stored_at < $2::timestamptz + interval '24 hours'
    and (deleted_at is null or deleted_at > $2)
order by job_id limit $3
"""
_CURRENT = """
select * from storage_charges
where job_id = $1 and day = $2 and reverses_charge_id is null and not exists (
    select from storage_charges as reversal
    where reversal.reverses_charge_id = storage_charges.charge_id)
"""
_ADD = """
with new as (
    insert into storage_charges values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    returning tenant_id, job_id, amount_micro_usd)
insert into storage_spend
    select tenant_id, subject, amount_micro_usd from new,
        lateral (values (''), (job_id)) as of (subject)
    order by 1, 2
on conflict (tenant_id, job_id) do update set
    charged_micro_usd = storage_spend.charged_micro_usd + excluded.charged_micro_usd
"""


@dataclass(frozen=True, slots=True)
class StorageCharge:
    """A job's bytes on a day. `correction` counts how often it was replaced before."""

    charge_id: str
    tenant_id: str
    job_id: str
    day: date
    byte_microseconds: int
    price_id: str
    micro_usd_per_gb_month: int
    amount_micro_usd: int
    correction: int = 0
    reverses_charge_id: str | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A job of whose days from `first_day` on something was learned."""

    job_id: str
    tenant_id: str
    first_day: date


async def put(connection: asyncpg.Connection, events: Sequence[Event[CheckpointCommitted]]) -> None:
    """Those that are not known yet; their jobs are due."""
    rows = [
        (
            event.payload.checkpoint_id,
            event.payload.tenant_id,
            event.payload.job_id,
            event.payload.size_bytes,
            event.occurred_at,
        )
        for event in events
    ]
    if rows:
        await connection.execute(_PUT, *map(list, zip(*rows, strict=True)))


async def set_deleted(
    connection: asyncpg.Connection, events: Sequence[Event[CheckpointDeleted]]
) -> None:
    """Those that are known and not deleted yet; their jobs are due."""
    rows = [(event.payload.checkpoint_id, event.occurred_at) for event in events]
    if rows:
        await connection.execute(_SET_DELETED, *map(list, zip(*rows, strict=True)))


async def take_due(connection: asyncpg.Connection) -> Due | None:
    """A job whose charged days must be compared again; no other process takes it.

    Where no such day has begun, nothing is due: a day reads all that is known when it begins.
    """
    await connection.execute(_FORGET_DUE)
    row = await connection.fetchrow(_TAKE_DUE)
    return None if row is None else Due(**row)


async def lock_job(connection: asyncpg.Connection, job_id: str) -> None:
    """Nobody else charges this job until the transaction ends."""
    await connection.execute("insert into jobs (job_id) values ($1) on conflict do nothing", job_id)
    await connection.execute("select from jobs where job_id = $1 for no key update", job_id)


async def byte_microseconds(
    connection: asyncpg.Connection, job_id: str, starts_at: datetime
) -> int:
    """On the day that begins at this midnight of UTC."""
    return int(await connection.fetchval(_BYTE_TIME, job_id, starts_at))


async def current(connection: asyncpg.Connection, job_id: str, day: date) -> StorageCharge | None:
    """The charge that no other reverses."""
    row = await connection.fetchrow(_CURRENT, job_id, day)
    if row is None:
        return None
    return StorageCharge(**{**row, "byte_microseconds": int(row["byte_microseconds"])})


async def num_charges(connection: asyncpg.Connection, job_id: str, day: date) -> int:
    """Of the day, reversed ones included."""
    number: int = await connection.fetchval(
        """
        select count(*) from storage_charges
        where job_id = $1 and day = $2 and reverses_charge_id is null
        """,
        job_id,
        day,
    )
    return number


async def add(connection: asyncpg.Connection, charge: StorageCharge) -> None:
    await connection.execute(_ADD, *astuple(charge))


async def first_stored(connection: asyncpg.Connection) -> date | None:
    """The day (UTC) of the oldest checkpoint that is known."""
    day: date | None = await connection.fetchval(
        "select (min(stored_at) at time zone 'UTC')::date from stored_checkpoints"
    )
    return day


async def days_begun(
    connection: asyncpg.Connection,
) -> tuple[tuple[date, date] | None, Sequence[date]]:
    """The first and last day whose charging has begun, and those of which it has not ended."""
    begun = await connection.fetchrow(
        "select min(day), max(day) from storage_days having count(*) > 0"
    )
    rows = await connection.fetch("select day from storage_days where not is_charged order by day")
    return None if begun is None else (begun["min"], begun["max"]), [row["day"] for row in rows]


async def begun_since(connection: asyncpg.Connection, first: date) -> Sequence[date]:
    """The days from `first` on whose charging has begun."""
    rows = await connection.fetch(
        "select day from storage_days where day >= $1 order by day", first
    )
    return [row["day"] for row in rows]


async def begin(connection: asyncpg.Connection, day: date) -> None:
    await connection.execute("insert into storage_days values ($1) on conflict do nothing", day)


async def end(connection: asyncpg.Connection, day: date) -> None:
    await connection.execute("update storage_days set is_charged = true where day = $1", day)


async def jobs_of(
    connection: asyncpg.Connection, after: str, starts_at: datetime, limit: int
) -> Sequence[tuple[str, str]]:
    """(job, tenant) with bytes on the day that begins at this midnight, by id."""
    rows = await connection.fetch(_JOBS, after, starts_at, limit)
    return [(row["job_id"], row["tenant_id"]) for row in rows]


async def charged_to(connection: asyncpg.Connection, of: Of, subject_id: str) -> int:
    condition = "job_id = $1" if of == "job" else "tenant_id = $1 and job_id = ''"
    amount: int = await connection.fetchval(
        f"select coalesce(sum(charged_micro_usd), 0)::bigint from storage_spend where {condition}",
        subject_id,
    )
    return amount
