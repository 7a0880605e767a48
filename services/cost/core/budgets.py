"""Budgets: when one has reached a level, when it is released, when it will be used up.

Levels are the warnings of a budget and 100, in percent of its limit. Each level is announced
once in a period; of several reached at once, only the highest.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

LIMIT = 100
# A forecast looks at this much of the past, and the rest of its first day: spend is kept by day. A
# week has working days and a weekend.
LOOK_BACK = timedelta(days=7)

Period = Literal["day", "month", "total"]
Action = Literal["warn", "hold", "stop"]


@dataclass(frozen=True, slots=True)
class Budget:
    """`reached_percent`: the highest level announced since `period_starts_at`."""

    limit_micro_usd: int
    period: Period
    at_limit: Action
    warn_percents: tuple[int, ...] = ()
    reached_percent: int = 0
    period_starts_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    percent: int
    action: Action


@dataclass(frozen=True, slots=True)
class Released:
    """The limit no longer holds anything back."""

    reason: Literal["new_period", "corrected"]


News = Reached | Released


@dataclass(frozen=True, slots=True)
class Judged:
    """What is to be told, in order, and the budget after that."""

    budget: Budget
    news: tuple[News, ...] = ()


def period_start(period: Period, now: datetime) -> datetime | None:
    """The beginning of the period in which `now` is; None where there is only one."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return midnight
        case "month":
            return midnight.replace(day=1)
        case "total":
            return None


def level(budget: Budget, spent_micro_usd: int) -> int:
    """The highest level that this spend has reached; 0 for none."""
    levels = (*budget.warn_percents, LIMIT)
    reached = [each for each in levels if spent_micro_usd * 100 >= budget.limit_micro_usd * each]
    return max(reached, default=0)


def reached_percent(budget: Budget, now: datetime) -> int:
    """The level told in the period of `now`; what was told in an earlier one is over."""
    is_of_now = period_start(budget.period, now) == budget.period_starts_at
    return budget.reached_percent if is_of_now else 0


def judge(budget: Budget, spent_micro_usd: int, now: datetime) -> Judged:
    """Compare the spend of the period of `now` with the budget. Judged again: no news."""
    news: list[News] = []
    starts_at = period_start(budget.period, now)
    if starts_at != budget.period_starts_at:
        if budget.reached_percent == LIMIT:
            news.append(Released("new_period"))
        budget = replace(budget, reached_percent=0, period_starts_at=starts_at)
    now_at = level(budget, spent_micro_usd)
    if budget.reached_percent == LIMIT and now_at < LIMIT:
        news.append(Released("corrected"))
    if now_at > budget.reached_percent:
        news.append(Reached(now_at, budget.at_limit if now_at == LIMIT else "warn"))
    # A correction may take spend back below a warning, which is announced again when reached.
    return Judged(replace(budget, reached_percent=now_at), tuple(news))


def is_due(budget: Budget, spent_micro_usd: int, now: datetime) -> bool:
    """Is there anything to tell or to keep? A new period alone is neither."""
    judged = judge(budget, spent_micro_usd, now)
    is_same_period = judged.budget.period_starts_at == budget.period_starts_at
    return bool(judged.news) or (is_same_period and judged.budget != budget)


def used_up_at(
    budget: Budget, spent_micro_usd: int, recent_micro_usd: int, now: datetime
) -> datetime | None:
    """When the limit is reached if spending goes on as in the last seven days.

    None: not in this period, or nothing was spent. `recent_micro_usd` is the spend since
    `recent_since(now)`, with what accrues.
    """
    left = budget.limit_micro_usd - spent_micro_usd
    if left <= 0:
        return now
    if recent_micro_usd <= 0:
        return None
    seconds = left * (now - recent_since(now)).total_seconds() / recent_micro_usd
    if seconds > timedelta(days=3650).total_seconds():
        return None
    moment = now + timedelta(seconds=seconds)
    ends_at = period_end(budget.period, now)
    return None if ends_at is not None and moment >= ends_at else moment


def recent_since(now: datetime) -> datetime:
    """The midnight at which the past that a forecast looks at begins."""
    return (now - LOOK_BACK).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def period_end(period: Period, now: datetime) -> datetime | None:
    """The first moment after the period in which `now` is; None: it has no end."""
    starts_at = period_start(period, now)
    if starts_at is None:
        return None
    if period == "day":
        return starts_at + timedelta(days=1)
    return (starts_at + timedelta(days=32)).replace(day=1)
