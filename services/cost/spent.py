"""What is spent of budgets: charged for the time of their periods, and accruing now.

The charges of all budgets are read by one statement, and what a subject accrues is worked out once,
however many budgets it has.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

import asyncpg

from services.cost import store_spend
from services.cost.core import budgets as core
from services.cost.core.charges import HOUR_MICROSECONDS, Usage, total_micro_usd
from services.cost.core.prices import PriceBook
from services.cost.store_budgets import BudgetRow, OpenUsage
from services.cost.store_spend import Asked, subject_of


@dataclass(frozen=True, slots=True)
class Spent:
    """Of one budget at one moment. `held` is held now, and since before the period too. `began_at`:
    when the time of it began; None: nothing was spent."""

    asked: Asked
    micro_usd: int
    held: Sequence[OpenUsage]
    began_at: datetime | None

    @property
    def running_jobs(self) -> tuple[str, ...]:
        return tuple(sorted({each.job_id for each in self.held}))


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
    starts = [core.period_start(row.spec.period.value, now) for row in rows]
    return await _spent_since(connection, rows, held, book, starts)


async def forecasts(
    connection: asyncpg.Connection,
    rows: Sequence[BudgetRow],
    amounts: Sequence[Spent],
    held: Sequence[OpenUsage],
    book: PriceBook,
    now: datetime,
) -> list[core.Forecast]:
    """Of each budget, of which this is spent."""
    rates = [[_running(each, book, now) for each in amounts]]
    for since in (core.days_ago(days, now) for days in core.LOOK_BACK_DAYS):
        recent = await _spent_since(connection, rows, held, book, [since] * len(rows))
        rates.append([core.rate(each.micro_usd, since, each.began_at, now) for each in recent])
    return [
        core.forecast(as_budget(row), each.micro_usd, of_row, now)
        for row, each, *of_row in zip(rows, amounts, *rates, strict=True)
    ]


def _running(spent: Spent, book: PriceBook, now: datetime) -> Fraction:
    """The rate of what is paid for now."""
    found = Fraction(0)
    for usage in (each.usage for each in spent.held if each.usage.ends_at >= now):
        price = book.price_at(usage.kind, now)
        per_hour = usage.num_slots * (price.micro_usd_per_slot_hour if price else 0)
        found += Fraction(per_hour, HOUR_MICROSECONDS)
    return found


async def reached_at(
    connection: asyncpg.Connection,
    row: BudgetRow,
    spent: Spent,
    percent: int,
    book: PriceBook,
    now: datetime,
) -> datetime | None:
    """When the spend reached this level, by the charges and what is held; looks back further and
    further, since mostly it was a second ago."""
    over = spent.micro_usd - core.amount_at(as_budget(row), percent)
    open_parts = [
        core.Part(each.starts_at, each.ends_at, usage.num_slots * each.micro_usd_per_slot_hour)
        for usage in (each.usage for each in spent.held)
        for each in book.periods(usage.kind, usage.starts_at, usage.ends_at)
    ]
    ids = {each.usage.allocation_id for each in spent.held}
    for days in (0, 1, 7, 31, 366, 3660):
        since = core.days_ago(days, now)
        parts = await store_spend.parts_since(connection, spent.asked, since, ids)
        moment = core.spent_since([*parts, *open_parts], over)
        if moment is not None and moment >= since:
            return moment
    return None


async def _spent_since(
    connection: asyncpg.Connection,
    rows: Sequence[BudgetRow],
    held: Sequence[OpenUsage],
    book: PriceBook,
    starts: Sequence[datetime | None],
) -> list[Spent]:
    of_subject: dict[tuple[str, str], list[OpenUsage]] = defaultdict(list)
    for each in held:
        for name in each.subjects:
            of_subject[each.tenant_id, name].append(each)
    asked = [_asked(*each) for each in zip(rows, starts, strict=True)]
    charged = await store_spend.charged(connection, set(asked))
    accruing: dict[Asked, tuple[int, datetime | None]] = {}
    found = []
    for question, starts_at in zip(asked, starts, strict=True):
        subject = (question.tenant_id, question.subject)
        own = of_subject.get(subject, ())
        if question not in accruing:
            usages = tuple(_since(each.usage, starts_at) for each in own)
            first_at = min((each.starts_at for each in usages), default=None)
            accruing[question] = (total_micro_usd(usages, book), first_at)
        (micro_usd, first_at), (more, also_at) = charged[question], accruing[question]
        began_at = min(filter(None, (first_at, also_at)), default=None)
        found.append(Spent(question, micro_usd + more, own, began_at))
    return found


def _asked(row: BudgetRow, starts_at: datetime | None) -> Asked:
    since = None if starts_at is None else starts_at.date()
    return Asked(row.tenant_id, subject_of(row.spec), since)


def _since(usage: Usage, starts_at: datetime | None) -> Usage:
    """The part of the usage that is in the period."""
    if starts_at is None or usage.starts_at >= starts_at:
        return usage
    begin = min(starts_at, usage.ends_at)
    return replace(usage, starts_at=begin)
