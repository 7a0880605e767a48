"""The statements about budgets and the spend they are compared with; no rules."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import asyncpg

from drivetrain_schemas.budgets import BudgetSpec
from drivetrain_schemas.charges import ChargeRecorded
from services.cost.core.charges import Usage
from services.cost.core.days import by_day
from services.cost.core.prices import Period

ALL = ""  # the study_id of rows that are of the whole tenant

_ADD_SPEND = """
insert into daily_spend
    select tenant_id, study_id, day, sum(amount)::bigint from (
        select tenant_id, study_id, day, amount
        from unnest($1::text[], $2::text[], $3::date[], $4::bigint[])
            as part(tenant_id, job_id, day, amount)
        join trial_jobs using (job_id)
        union all
        select tenant_id, '', day, amount
        from unnest($1::text[], $2::text[], $3::date[], $4::bigint[])
            as part(tenant_id, job_id, day, amount)
    ) as parts
    group by tenant_id, study_id, day order by tenant_id, study_id, day
on conflict (tenant_id, study_id, day) do update set
    charged_micro_usd = daily_spend.charged_micro_usd + excluded.charged_micro_usd
"""
_BUDGETS = "select * from budgets where $1::text is null or tenant_id = $1 order by tenant_id, name"
_OPEN = """
select allocations.*, study_id, clock_timestamp() as now
from allocations left join trial_jobs using (job_id)
where released_at is null and tenant_id = any($1::text[]) order by allocation_id
"""
_SPENT = """
select coalesce(sum(charged_micro_usd), 0)::bigint from daily_spend
where tenant_id = $1 and study_id = $2 and ($3::date is null or day >= $3)
"""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    tenant_id: str
    name: str
    version: int
    spec: BudgetSpec
    reached_percent: int = 0
    period_starts_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OpenUsage:
    """What a job holds now, from its grant to this moment."""

    tenant_id: str
    job_id: str
    study_id: str | None
    usage: Usage


async def put_trials(connection: asyncpg.Connection, trials: Sequence[tuple[str, str]]) -> None:
    """The studies of these jobs: (job id, study id)."""
    await connection.executemany(
        "insert into trial_jobs (job_id, study_id) values ($1, $2) on conflict do nothing", trials
    )


async def add_spend(connection: asyncpg.Connection, charges: Sequence[ChargeRecorded]) -> None:
    """Add new charges to the days in which their time was."""
    rows = [
        (charge.tenant_id, charge.job_id, day, amount)
        for charge in charges
        for day, amount in days_of(charge)
    ]
    if rows:
        await connection.execute(_ADD_SPEND, *map(list, zip(*rows, strict=True)))


def days_of(charge: ChargeRecorded) -> list[tuple[date, int]]:
    """What a charge costs on each day; a reversal takes off what its charge had added."""
    period = Period(
        charge.starts_at, charge.ends_at, charge.price_id, charge.price_micro_usd_per_slot_hour
    )
    sign = -1 if charge.reverses_charge_id else 1
    return [(day, sign * amount) for day, amount in by_day(charge.num_slots, period)]


async def budgets(
    connection: asyncpg.Connection, tenant_id: str | None = None
) -> Sequence[BudgetRow]:
    """All of them, or a tenant's."""
    return [_budget(row) for row in await connection.fetch(_BUDGETS, tenant_id)]


async def lock_budget(
    connection: asyncpg.Connection, tenant_id: str, name: str
) -> BudgetRow | None:
    """The budget, locked until the transaction ends."""
    row = await connection.fetchrow(
        "select * from budgets where tenant_id = $1 and name = $2 for update", tenant_id, name
    )
    return None if row is None else _budget(row)


async def num_budgets(connection: asyncpg.Connection, tenant_id: str) -> int:
    number: int = await connection.fetchval(
        "select count(*) from budgets where tenant_id = $1", tenant_id
    )
    return number


async def put_budget(
    connection: asyncpg.Connection, tenant_id: str, name: str, spec: BudgetSpec
) -> BudgetRow:
    """The budget with this spec under a new version, of which no level has been told."""
    row = await connection.fetchrow(
        """
        insert into budgets (tenant_id, name, version, spec)
        values ($1, $2, nextval('budget_versions'), $3)
        on conflict (tenant_id, name) do update set
            version = excluded.version, spec = excluded.spec, reached_percent = 0,
            period_starts_at = null
        returning *
        """,
        tenant_id,
        name,
        spec.model_dump_json(),
    )
    return _budget(row)


async def set_reached(
    connection: asyncpg.Connection, row: BudgetRow, percent: int, period_starts_at: datetime | None
) -> None:
    await connection.execute(
        """
        update budgets set reached_percent = $3, period_starts_at = $4
        where tenant_id = $1 and name = $2
        """,
        row.tenant_id,
        row.name,
        percent,
        period_starts_at,
    )


async def delete_budget(connection: asyncpg.Connection, tenant_id: str, name: str) -> None:
    await connection.execute(
        "delete from budgets where tenant_id = $1 and name = $2", tenant_id, name
    )


async def insert_stop(connection: asyncpg.Connection, row: BudgetRow, job_id: str) -> bool:
    """False when this job was told before."""
    inserted = await connection.fetchval(
        """
        insert into budget_stops (tenant_id, name, job_id) values ($1, $2, $3)
        on conflict do nothing returning true
        """,
        row.tenant_id,
        row.name,
        job_id,
    )
    return bool(inserted)


async def forget_stops(connection: asyncpg.Connection, row: BudgetRow) -> None:
    await connection.execute(
        "delete from budget_stops where tenant_id = $1 and name = $2", row.tenant_id, row.name
    )


async def open_usages(
    connection: asyncpg.Connection, tenant_ids: Sequence[str]
) -> Sequence[OpenUsage]:
    """What these tenants hold now."""
    return [_open(row) for row in await connection.fetch(_OPEN, list(tenant_ids))]


async def charged_since(
    connection: asyncpg.Connection, row: BudgetRow, starts_at: datetime | None
) -> int:
    """What was charged to the budget's subject for the time since `starts_at`, a midnight."""
    since = None if starts_at is None else starts_at.date()
    if row.spec.job_id is None:
        charged: int = await connection.fetchval(
            _SPENT, row.tenant_id, row.spec.study_id or ALL, since
        )
        return charged
    total: Counter[date] = Counter()
    for each in await connection.fetch(
        "select * from charges where job_id = $1 and tenant_id = $2",
        row.spec.job_id,
        row.tenant_id,
    ):
        period = Period(
            each["starts_at"], each["ends_at"], "", each["price_micro_usd_per_slot_hour"]
        )
        sign = -1 if each["reverses_charge_id"] else 1
        for day, amount in by_day(each["num_slots"], period):
            total[day] += sign * amount
    return sum(amount for day, amount in total.items() if since is None or day >= since)


def _budget(row: Any) -> BudgetRow:
    return BudgetRow(
        tenant_id=row["tenant_id"],
        name=row["name"],
        version=row["version"],
        spec=BudgetSpec.model_validate_json(row["spec"], extra="ignore"),
        reached_percent=row["reached_percent"],
        period_starts_at=row["period_starts_at"],
    )


def _open(row: Any) -> OpenUsage:
    now = max(row["granted_at"], row["now"])
    usage = Usage(
        allocation_id=row["allocation_id"],
        pool=row["pool"],
        device_type=row["device_type"],
        num_slots=row["num_slots"],
        starts_at=row["granted_at"],
        paid_ends_at=now,
        ends_at=now,
    )
    return OpenUsage(row["tenant_id"], row["job_id"], row["study_id"], usage)
