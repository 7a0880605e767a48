"""What is spent of budgets: charged for the time of their periods, and accruing now.

The charges of all budgets are read by one statement, and what a subject accrues and which of its
jobs run is worked out once, however many budgets it has.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import asyncpg

from services.cost import store_spend
from services.cost.core import budgets as core
from services.cost.core.charges import Usage, total_micro_usd
from services.cost.core.prices import PriceBook
from services.cost.store_budgets import BudgetRow, OpenUsage
from services.cost.store_spend import Asked, subject_of


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
    rows: Sequence[BudgetRow],
    held: Sequence[OpenUsage],
    book: PriceBook,
    now: datetime,
) -> list[Spent]:
    """Of each budget, in the period of `now`. `held` are the open usages of their tenants, read
    with `now`."""

    def since(row: BudgetRow) -> datetime | None:
        return core.period_start(row.spec.period.value, now)

    return await _spent_since(connection, rows, held, book, since)


async def recent(
    connection: asyncpg.Connection,
    rows: Sequence[BudgetRow],
    held: Sequence[OpenUsage],
    book: PriceBook,
    now: datetime,
) -> list[Spent]:
    """The spend of the last week, for forecasts."""
    starts_at = core.recent_since(now)
    return await _spent_since(connection, rows, held, book, lambda _: starts_at)


async def _spent_since(
    connection: asyncpg.Connection,
    rows: Sequence[BudgetRow],
    held: Sequence[OpenUsage],
    book: PriceBook,
    since: Callable[[BudgetRow], datetime | None],
) -> list[Spent]:
    of_subject: dict[tuple[str, str], list[OpenUsage]] = defaultdict(list)
    for each in held:
        for name in each.subjects:
            of_subject[each.tenant_id, name].append(each)
    running = {subject: _jobs(own) for subject, own in of_subject.items()}
    asked = [_asked(row, since(row)) for row in rows]
    charged = await store_spend.charged(connection, set(asked))
    accruing: dict[Asked, int] = {}
    found = []
    for row, question in zip(rows, asked, strict=True):
        subject = (question.tenant_id, question.subject)
        if question not in accruing:
            own = of_subject.get(subject, ())
            usages = tuple(_since(each.usage, since(row)) for each in own)
            accruing[question] = total_micro_usd(usages, book)
        found.append(Spent(charged[question] + accruing[question], running.get(subject, ())))
    return found


def _jobs(held: Iterable[OpenUsage]) -> tuple[str, ...]:
    return tuple(sorted({each.job_id for each in held}))


def _asked(row: BudgetRow, starts_at: datetime | None) -> Asked:
    since = None if starts_at is None else starts_at.date()
    return Asked(row.tenant_id, subject_of(row.spec), since)


def _since(usage: Usage, starts_at: datetime | None) -> Usage:
    """The part of the usage that is in the period."""
    if starts_at is None or usage.starts_at >= starts_at:
        return usage
    begin = min(starts_at, usage.ends_at)
    return replace(usage, starts_at=begin)
