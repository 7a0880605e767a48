"""The scheduler's copy of what budgets hold back, from `events.budgets`.

The events of a tenant are in order, so the last one of a budget counts.
"""

from typing import Any

import asyncpg

from drivetrain_schemas.budgets import AtLimit, BudgetReached, BudgetReleased, BudgetRemoved
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.units import money
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler.core.holds import Hold

log = logs.get()

BUDGET_EVENTS = (BudgetReached, BudgetReleased, BudgetRemoved)


async def handle(tx: Tx, event: Event[Any]) -> None:
    """Begin or end a hold. The caller holds the writer lock."""
    payload = event.payload
    if isinstance(payload, BudgetReached):
        if payload.percent < 100:
            return
        if payload.action is not AtLimit.WARN:
            await _put(tx.connection, payload)
            log.info("budget holds jobs back", tenant_id=payload.tenant_id, budget=payload.name)
            return
    await tx.connection.execute(
        "delete from budget_holds where tenant_id = $1 and name = $2",
        payload.tenant_id,
        payload.name,
    )
    log.info("budget holds nothing back", tenant_id=payload.tenant_id, budget=payload.name)


async def read(connection: asyncpg.Connection) -> tuple[Hold, ...]:
    rows = await connection.fetch("select * from budget_holds order by tenant_id, name")
    return tuple(
        Hold(
            row["tenant_id"],
            row["name"],
            row["detail"],
            row["study_id"],
            row["job_id"],
            row["project"],
        )
        for row in rows
    )


async def _put(connection: asyncpg.Connection, reached: BudgetReached) -> None:
    # Not what was spent when it was reached: what runs spends on, and both would be shown.
    limit = money(reached.spec.limit_micro_usd)
    detail = f"the budget {reached.name} is used up: its limit of {limit} is spent"
    await connection.execute(
        """
        insert into budget_holds (tenant_id, name, study_id, job_id, detail, project)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (tenant_id, name) do update set
            study_id = excluded.study_id, job_id = excluded.job_id, detail = excluded.detail,
            project = excluded.project
        """,
        reached.tenant_id,
        reached.name,
        reached.spec.study_id,
        reached.spec.job_id,
        detail,
        reached.spec.project,
    )
