"""The statements about budgets and what their subjects hold; no rules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.budgets import BudgetSpec
from services.cost import store
from services.cost.core.charges import Usage
from services.cost.store_accrual import PAID_UNTIL
from services.cost.store_spend import TENANT, subject_of_project

_BUDGETS = "select * from budgets where $1::text is null or tenant_id = $1 order by tenant_id, name"
_OPEN = f"""
select allocations.*, study_id, project, least(clock_timestamp(), {PAID_UNTIL}) as now
from allocations left join jobs using (job_id) left join run_facts using (run_id)
where released_at is null and tenant_id = any($1::text[]) order by allocation_id
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
    """What a job holds, from its grant to when it is paid. `subjects`: whose budgets count it."""

    tenant_id: str
    job_id: str
    subjects: tuple[str, ...]
    usage: Usage


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
    """False where this job was stopped by this budget before."""
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
    rows = await connection.fetch(_OPEN, list(tenant_ids))
    return [usage for row in rows for usage in _open(row)]


def _budget(row: Any) -> BudgetRow:
    return BudgetRow(
        tenant_id=row["tenant_id"],
        name=row["name"],
        version=row["version"],
        spec=BudgetSpec.model_validate_json(row["spec"], extra="ignore"),
        reached_percent=row["reached_percent"],
        period_starts_at=row["period_starts_at"],
    )


def _open(row: Any) -> Iterator[OpenUsage]:
    project = subject_of_project(row["project"])
    subjects = (TENANT, row["job_id"], *filter(None, (row["study_id"], project)))
    for usage in store.open_usages(row):
        yield OpenUsage(row["tenant_id"], row["job_id"], subjects, usage)
