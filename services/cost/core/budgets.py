"""Budgets: when one has reached a level, when it is released, when it will be used up.

Levels are the warnings of a budget and 100, in percent of its limit. Each level is announced
once in a period; of several reached at once, only the highest.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple

from services.cost.core.charges import HOUR_MICROSECONDS
from services.cost.core.steps import midnight

LIMIT = 100
# A forecast looks at so many days of the past, each from its midnight on, because spend is kept by
# day. A week has working days and a weekend; the last day shows what has changed.
LOOK_BACK_DAYS = (7, 1)
MICROSECOND = timedelta(microseconds=1)

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
    match period:
        case "day":
            return days_ago(0, now)
        case "month":
            return days_ago(0, now).replace(day=1)
        case "total":
            return None


def level(budget: Budget, spent_micro_usd: int) -> int:
    """The highest level that this spend has reached; 0 for none."""
    levels = (*budget.warn_percents, LIMIT)
    reached = [each for each in levels if spent_micro_usd >= amount_at(budget, each)]
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


class Part(NamedTuple):
    """Time in which slots were held at one price."""

    starts_at: datetime
    ends_at: datetime
    micro_usd_per_hour: int


def amount_at(budget: Budget, percent: int) -> int:
    """The least spend that has reached this level."""
    return -(-budget.limit_micro_usd * percent // 100)


def spent_since(parts: Iterable[Part], micro_usd: int) -> datetime | None:
    """The moment since which so much was spent; None: the parts together are less."""
    changes: Counter[datetime] = Counter()
    for part in parts:
        changes[part.ends_at] += part.micro_usd_per_hour
        changes[part.starts_at] -= part.micro_usd_per_hour
    left, rate = micro_usd * HOUR_MICROSECONDS, 0
    moments = sorted(changes, reverse=True)
    for later, earlier in pairwise(moments):
        rate += changes[later]
        spent = rate * ((later - earlier) // MICROSECOND)
        if rate and spent >= left:
            return later - left // rate * MICROSECOND
        left -= spent
    return None


def rate(micro_usd: int, since: datetime, began_at: datetime | None, now: datetime) -> Fraction:
    """Micro-dollars per microsecond since then, or since the spending began where that is later."""
    age = now - max(since, began_at or since)
    return Fraction(micro_usd, max(age, MICROSECOND) // MICROSECOND)


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the limit is reached; None: not in this period, or not within ten years."""

    used_up_at: datetime | None = None
    used_up_earliest: datetime | None = None
    used_up_latest: datetime | None = None


def forecast(
    budget: Budget, spent_micro_usd: int, rates: Sequence[Fraction], now: datetime
) -> Forecast:
    """`rates`: of what runs now, and of the time since each of LOOK_BACK_DAYS.

    Likely at the higher one of the first two, earliest at the highest and latest at the lowest:
    they agree where spending is even, and while nothing runs there is no latest.
    """
    left = budget.limit_micro_usd - spent_micro_usd
    if left <= 0:
        return Forecast()
    chosen = (max(rates[:2]), max(rates), min(rates))
    return Forecast(*(_reached_at(budget, left, each, now) for each in chosen))


def _reached_at(budget: Budget, left: int, rate: Fraction, now: datetime) -> datetime | None:
    if left > rate * (timedelta(days=3650) // MICROSECOND):
        return None
    moment = now + int(left / rate) * MICROSECOND
    ends_at = period_end(budget.period, now)
    return None if ends_at is not None and moment >= ends_at else moment


def days_ago(days: int, now: datetime) -> datetime:
    """The midnight with which that day began."""
    return midnight((now.astimezone(UTC) - timedelta(days=days)).date())


def period_end(period: Period, now: datetime) -> datetime | None:
    """The first moment after the period in which `now` is; None: it has no end."""
    starts_at = period_start(period, now)
    if starts_at is None:
        return None
    if period == "day":
        return starts_at + timedelta(days=1)
    return (starts_at + timedelta(days=32)).replace(day=1)
