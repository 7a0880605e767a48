"""Compares every budget with what is spent, about once a second, and stops jobs where it must.

One reading of budgets, open allocations and sums at one moment; a transaction only for a budget
about which there is news, or whose jobs still run although it stops them. So a midnight, at which
every period of a day begins, is a look like any other.
"""

from dataclasses import dataclass
from datetime import datetime

from drivetrain_schemas.budgets import AtLimit
from drivetrain_schemas.jobs import JobStop
from services.cost import store, store_budgets
from services.cost.budgets import tell
from services.cost.core import budgets as core
from services.cost.core.prices import PriceBook
from services.cost.instruments import BUDGET_STOPS, BUDGET_WATCH_SECONDS
from services.cost.spent import Spent, as_budget, spent
from services.cost.store_budgets import BudgetRow
from services.runtime import logs
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Due:
    """A budget that needs a transaction."""

    row: BudgetRow
    spent: Spent
    now: datetime  # of this spend: a later one may be in another period


class BudgetWatch:
    """A task of the service."""

    def __init__(self, book: PriceBook) -> None:
        self._book = book

    async def run(self, platform: Platform) -> None:
        async def work() -> None:
            with BUDGET_WATCH_SECONDS.time():
                await self.look(platform)

        waits = "budgets not compared with the spend"
        await repeat(work, platform.clock, WATCH_SECONDS, waits)

    async def look(self, platform: Platform) -> None:
        """Compare all of them once."""
        for due in await self._due(platform):
            async with platform.database.transaction() as tx:
                await self._take(tx, due)

    async def _due(self, platform: Platform) -> list[Due]:
        async with platform.database.connection() as connection, store.one_moment(connection):
            rows = await store_budgets.budgets(connection)
            if not rows:
                return []
            now = await store.now(connection)
            tenants = sorted({row.tenant_id for row in rows})
            held = await store_budgets.open_usages(connection, tenants)
            amounts = await spent(connection, rows, held, self._book, now)
        found = [Due(row, amount, now) for row, amount in zip(rows, amounts, strict=True)]
        return [
            due
            for due in found
            if core.is_due(as_budget(due.row), due.spent.micro_usd, now)
            or (_stops(due.row) and due.spent.running_jobs)
        ]

    async def _take(self, tx: Tx, due: Due) -> None:
        row = await store_budgets.lock_budget(tx.connection, due.row.tenant_id, due.row.name)
        if row != due.row:
            return  # changed meanwhile: the next look sees it
        await tell(tx, row, due.spent, self._book, due.now)
        row = await store_budgets.lock_budget(tx.connection, row.tenant_id, row.name)
        assert row is not None
        if not _stops(row):
            return
        for job_id in due.spent.running_jobs:
            if await store_budgets.insert_stop(tx.connection, row, job_id):
                reason = f"the budget {row.name} is used up"
                await tx.emit(JobStop(job_id=job_id, reason=reason), tenant_id=row.tenant_id)
                tx.after_commit(BUDGET_STOPS.inc)
                log.info("job is stopped by a budget", job_id=job_id, budget=row.name)


def _stops(row: BudgetRow) -> bool:
    return row.spec.at_limit is AtLimit.STOP and row.reached_percent == core.LIMIT
