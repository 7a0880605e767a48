"""What is spent of a budget: charged for the time of its period, and accruing now."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import asyncpg

from services.cost import store_budgets
from services.cost.core import budgets as core
from services.cost.core.charges import Usage, total_micro_usd
from services.cost.core.prices import PriceBook
from services.cost.store_budgets import BudgetRow, OpenUsage


@dataclass(frozen=True, slots=True)
class Spent:
    """Of one budget at one moment. `running_jobs` hold slots now."""

    micro_usd: int
    running_jobs: tuple[str, ...]


def as_budget(row: BudgetRow) -> core.Budget:
    spec = row.spec
    return core.Budget(
        limit_micro_usd=spec.limit_micro_usd,
        period=spec.period.value,
        at_limit=spec.at_limit.value,
        warn_percents=spec.warn_percents,
        reached_percent=row.reached_percent,
        period_starts_at=row.period_starts_at,
    )


async def spent(
    connection: asyncpg.Connection,
    row: BudgetRow,
    held: Sequence[OpenUsage],
    book: PriceBook,
    now: datetime,
) -> Spent:
    """In the period of `now`. `held` are the open usages of the tenant, read with `now`."""
    starts_at = core.period_start(row.spec.period.value, now)
    own = [each for each in held if _is_of(row, each)]
    charged = await store_budgets.charged_since(connection, row, starts_at)
    accruing = total_micro_usd(tuple(_since(each.usage, starts_at) for each in own), book)
    return Spent(charged + accruing, tuple(sorted({each.job_id for each in own})))


async def recent(
    connection: asyncpg.Connection,
    row: BudgetRow,
    held: Sequence[OpenUsage],
    book: PriceBook,
    now: datetime,
) -> int:
    """The spend of the days of the last week, for a forecast."""
    starts_at = core.period_start("day", now - core.LOOK_BACK)
    charged = await store_budgets.charged_since(connection, row, starts_at)
    own = tuple(_since(each.usage, starts_at) for each in held if _is_of(row, each))
    return charged + total_micro_usd(own, book)


def _is_of(row: BudgetRow, held: OpenUsage) -> bool:
    spec = row.spec
    return (
        held.tenant_id == row.tenant_id
        and spec.job_id in (None, held.job_id)
        and spec.study_id in (None, held.study_id)
    )


def _since(usage: Usage, starts_at: datetime | None) -> Usage:
    """The part of the usage that is in the period."""
    if starts_at is None or usage.starts_at >= starts_at:
        return usage
    begin = min(starts_at, usage.ends_at)
    return replace(usage, starts_at=begin)
