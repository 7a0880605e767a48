"""When a budget has reached a level, is released, and will be used up."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cost.core.budgets import (
    LOOK_BACK_DAYS,
    MICROSECOND,
    Budget,
    Forecast,
    Part,
    Reached,
    Released,
    days_ago,
    forecast,
    is_due,
    judge,
    level,
    period_end,
    period_start,
    rate,
    reached_percent,
    spent_since,
)

NOW = datetime(2026, 2, 14, 15, 30, tzinfo=UTC)
BUDGET = Budget(
    limit_micro_usd=1_000,
    period="month",
    at_limit="stop",
    warn_percents=(50, 80),
    period_starts_at=datetime(2026, 2, 1, tzinfo=UTC),
)


@pytest.mark.parametrize(
    ("spent", "percent"),
    [(0, 0), (499, 0), (500, 50), (799, 50), (800, 80), (999, 80), (1000, 100)],
)
def test_a_level_is_reached_by_the_exact_amount(spent: int, percent: int) -> None:
    assert level(BUDGET, spent) == percent


def test_the_highest_of_several_levels_is_told_and_only_once() -> None:
    judged = judge(BUDGET, 850, NOW)
    assert judged.news == (Reached(80, "warn"),)
    assert judge(judged.budget, 850, NOW).news == ()
    at_limit = judge(judged.budget, 1_200, NOW)
    assert at_limit.news == (Reached(100, "stop"),)
    assert judge(at_limit.budget, 1_300, NOW).news == ()


def test_a_new_period_releases_and_counts_anew() -> None:
    reached = replace(BUDGET, reached_percent=100)
    march = datetime(2026, 3, 1, tzinfo=UTC)
    judged = judge(reached, 600, march)
    assert judged.news == (Released("new_period"), Reached(50, "warn"))
    assert judged.budget.period_starts_at == march
    assert judge(judged.budget, 600, march).news == ()


def test_the_smallest_level_is_announced_in_a_new_period_too() -> None:
    reached = replace(BUDGET, warn_percents=(1,), reached_percent=1)
    assert judge(reached, 10, datetime(2026, 3, 1, tzinfo=UTC)).news == (Reached(1, "warn"),)


def test_a_new_period_in_which_nothing_was_held_back_releases_nothing() -> None:
    judged = judge(replace(BUDGET, reached_percent=80), 0, datetime(2026, 3, 1, tzinfo=UTC))
    assert judged.news == ()


def test_a_correction_below_the_limit_releases() -> None:
    judged = judge(replace(BUDGET, reached_percent=100), 990, NOW)
    assert judged.news == (Released("corrected"),)
    assert judge(judged.budget, 1_000, NOW).news == (Reached(100, "stop"),)


@given(st.lists(st.integers(0, 2_000), max_size=20))
def test_it_is_held_exactly_while_the_spend_is_at_the_limit(amounts: list[int]) -> None:
    budget, is_held = BUDGET, False
    for spent in amounts:
        judged = judge(budget, spent, NOW)
        budget = judged.budget
        for news in judged.news:
            if isinstance(news, Released):
                assert is_held
                is_held = False
            elif news.percent == 100:
                assert not is_held
                is_held = True
        assert is_held == (spent >= 1_000)


@pytest.mark.parametrize(
    ("period", "starts_at", "ends_at"),
    [
        ("day", datetime(2026, 2, 14, tzinfo=UTC), datetime(2026, 2, 15, tzinfo=UTC)),
        ("month", datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        ("total", None, None),
    ],
)
def test_periods_are_days_and_months_of_utc(
    period: str, starts_at: datetime | None, ends_at: datetime | None
) -> None:
    assert period_start(period, NOW) == starts_at
    assert period_end(period, NOW) == ends_at


def test_december_ends_with_the_year() -> None:
    december = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert period_end("month", december) == datetime(2027, 1, 1, tzinfo=UTC)


HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
RATE = 30_000_000  # an hour
HUGE = Budget(10**15, "total", "warn")


def seen(spending: list[Part], now: datetime, budget: Budget) -> Forecast:
    """What is forecast at `now` of spending of which only the past is known."""
    past = [Part(it.starts_at, min(it.ends_at, now), RATE) for it in spending if it.starts_at < now]
    running = Fraction(sum(RATE for it in spending if it.starts_at <= now < it.ends_at), US_OF_HOUR)
    rates = [running]
    for days in LOOK_BACK_DAYS:
        since = days_ago(days, now)
        recent = [it for it in past if it.ends_at > since]
        began_at = min((max(it.starts_at, since) for it in recent), default=None)
        rates.append(rate(int(spent(recent, since)), since, began_at, now))
    return forecast(budget, int(spent(past, DAWN)), rates, now)


def spent(parts: list[Part], since: datetime) -> Fraction:
    held = sum((it.ends_at - max(it.starts_at, since) for it in parts), timedelta())
    return Fraction(held // timedelta(microseconds=1) * RATE, US_OF_HOUR)


def used_up(spending: list[Part], limit: int) -> datetime:
    """When these, one after the other, have spent the limit."""
    left = timedelta(microseconds=limit * US_OF_HOUR // RATE)
    for part in spending:
        if part.ends_at - part.starts_at >= left:
            return part.starts_at + left
        left -= part.ends_at - part.starts_at
    raise AssertionError("the spending ends before")


DAWN = datetime(2020, 1, 1, tzinfo=UTC)
US_OF_HOUR = 3_600_000_000


@given(
    age=st.timedeltas(timedelta(seconds=1), timedelta(days=400)),
    left=st.integers(1, 365 * 24 * RATE),
    time=st.timedeltas(timedelta(), DAY),
)
def test_even_spending_of_any_age_has_one_moment(
    age: timedelta, left: int, time: timedelta
) -> None:
    now = NOW.replace(hour=0, minute=0) + time
    spending = [Part(now - age, now + timedelta(days=400), RATE)]
    limit = int(spent([Part(now - age, now, RATE)], DAWN)) + left
    found = seen(spending, now, replace(HUGE, limit_micro_usd=limit))
    for moment in (found.used_up_at, found.used_up_earliest, found.used_up_latest):
        assert moment is not None
        truth = used_up(spending, limit)
        # A second's spend is 8,333 whole micro-dollars.
        assert abs(moment - truth) <= timedelta(seconds=1) + (truth - now) / 5_000


@given(
    busy=st.timedeltas(timedelta(minutes=5), timedelta(hours=8)),
    idle=st.timedeltas(timedelta(minutes=5), timedelta(hours=8)),
    age=st.timedeltas(timedelta(days=1), timedelta(days=20)),
    left=st.integers(RATE, 24 * 10 * RATE),
)
def test_bursts_are_used_up_between_the_earliest_and_the_latest(
    busy: timedelta, idle: timedelta, age: timedelta, left: int
) -> None:
    """But for the bursts that may begin, or have begun, on either side of what is looked at."""
    begin, length = NOW - age, busy + idle
    num_bursts = age // length + (left * HOUR / RATE) // busy + 3
    starts = [begin + n * length for n in range(num_bursts)]
    spending = [Part(each, each + busy, RATE) for each in starts]
    past = [Part(it.starts_at, min(it.ends_at, NOW), RATE) for it in spending if it.starts_at < NOW]
    limit = int(spent(past, DAWN)) + left
    found = seen(spending, NOW, replace(HUGE, limit_micro_usd=limit))
    truth = used_up(spending, limit)
    # In the day that is looked at, and until then, there may be one burst more or less.
    slack = 2 * length + (truth - NOW) * (length / DAY)
    assert found.used_up_earliest is not None
    assert found.used_up_earliest <= truth + slack
    assert found.used_up_latest is None or found.used_up_latest >= truth - slack


@given(st.lists(st.fractions(0, 10), min_size=3, max_size=3), st.integers(0, 1_100))
def test_the_likely_moment_lies_in_the_interval(rates: list[Fraction], spent: int) -> None:
    far = datetime.max.replace(tzinfo=UTC)
    found = forecast(BUDGET, spent, rates, NOW)
    likely, latest = found.used_up_at or far, found.used_up_latest or far
    assert (found.used_up_earliest or far) <= likely <= latest


def test_a_budget_of_a_dollar_at_thirty_an_hour_is_used_up_within_minutes() -> None:
    """Half of it is spent, all in the last minute."""
    began_at = NOW - timedelta(minutes=1)
    found = seen([Part(began_at, NOW + DAY, RATE)], NOW, replace(BUDGET, limit_micro_usd=1_000_000))
    assert found.used_up_at == found.used_up_latest == began_at + timedelta(minutes=2)


def test_what_began_an_hour_ago_is_not_spread_over_a_week() -> None:
    """And what has stopped: likely as before, but perhaps never."""
    budget = replace(HUGE, limit_micro_usd=2 * RATE)
    stopped = seen([Part(NOW - HOUR, NOW - HOUR / 2, RATE)], NOW, budget)
    assert stopped.used_up_at == stopped.used_up_earliest == NOW + 3 * HOUR
    assert stopped.used_up_latest is None


def test_what_runs_now_counts_more_than_a_quiet_week() -> None:
    week = [Part(NOW - 6 * DAY - HOUR, NOW - 6 * DAY, RATE), Part(NOW - HOUR / 2, NOW + DAY, RATE)]
    found = seen(week, NOW, replace(HUGE, limit_micro_usd=3 * RATE // 2 + RATE))
    assert found.used_up_at == found.used_up_earliest == NOW + HOUR
    assert found.used_up_latest is not None
    assert found.used_up_latest > NOW + 3 * DAY


def test_no_forecast_without_spend_of_what_is_used_up_or_beyond_the_period() -> None:
    one = Fraction(1, US_OF_HOUR)
    assert forecast(BUDGET, 0, [Fraction(0)] * 3, NOW) == Forecast()
    assert forecast(BUDGET, 1_000, [one] * 3, NOW) == Forecast()
    hours = (datetime(2026, 3, 1, tzinfo=UTC) - NOW) // (HOUR / 2)
    budget = replace(BUDGET, limit_micro_usd=hours)
    assert forecast(budget, 0, [2 * one] * 3, NOW) == Forecast()
    last = datetime(2026, 2, 28, 23, 30, tzinfo=UTC)
    assert forecast(budget, 1, [2 * one] * 3, NOW) == Forecast(last, last, last)


def test_no_forecast_after_ten_years() -> None:
    rates = [Fraction(1, US_OF_HOUR)] * 3
    years = Budget(3650 * 24, "total", "warn")
    assert forecast(years, 0, rates, NOW).used_up_at == NOW + timedelta(days=3650)
    assert forecast(replace(years, limit_micro_usd=3651 * 24), 0, rates, NOW) == Forecast()


@given(
    st.lists(
        st.tuples(
            st.timedeltas(timedelta(), DAY), st.timedeltas(HOUR / 60, DAY), st.integers(1, RATE)
        ),
        min_size=1,
        max_size=8,
    ),
    st.fractions(0, 1),
)
def test_so_much_was_spent_since_the_moment_that_is_found(
    held: list[tuple[timedelta, timedelta, int]], share: Fraction
) -> None:
    parts = [Part(NOW - ago - length, NOW - ago, price) for ago, length, price in held]

    def since(moment: datetime) -> Fraction:
        own = [(max(it.ends_at - max(it.starts_at, moment), timedelta()), it) for it in parts]
        return sum(
            (Fraction(time // MICROSECOND * it[2], US_OF_HOUR) for time, it in own), Fraction()
        )

    amount = int(since(DAWN) * share)
    moment = spent_since(parts, amount)
    assert moment is not None
    assert since(moment) <= amount <= since(moment - MICROSECOND)
    assert spent_since(parts, int(since(DAWN)) + 1) is None


def test_a_level_holds_for_its_period() -> None:
    reached = replace(BUDGET, reached_percent=80)
    assert reached_percent(reached, NOW) == 80
    assert reached_percent(reached, datetime(2026, 3, 1, tzinfo=UTC)) == 0


def test_a_new_period_alone_is_nothing_to_keep() -> None:
    noon = datetime(2026, 2, 1, 12, tzinfo=UTC)
    midnight, earlier = noon.replace(hour=0), noon - timedelta(days=3)
    for reached, spent, starts_at, want in (
        (0, 0, earlier, False),
        (80, 0, earlier, False),
        (100, 0, earlier, True),  # it is released
        (0, 90, earlier, True),
        (80, 0, midnight, True),  # a correction: the warning is to be told again
        (80, 90, midnight, False),
    ):
        of_day = Budget(100, "day", "hold", (80,), reached, starts_at)
        assert is_due(of_day, spent, noon) == want, (reached, spent, starts_at)
