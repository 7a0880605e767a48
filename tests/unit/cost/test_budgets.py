"""When a budget has reached a level, is released, and will be used up."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cost.core.budgets import (
    Budget,
    Reached,
    Released,
    is_due,
    judge,
    level,
    period_end,
    period_start,
    reached_percent,
    used_up_at,
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


@pytest.mark.parametrize("time", [(0, 0), (15, 30), (23, 59)])
def test_a_forecast_continues_the_last_week(time: tuple[int, int]) -> None:
    # 1,440 a day, one each minute: 2,880 more are two days, at whatever time it is asked.
    now = NOW.replace(hour=time[0], minute=time[1])
    recent = 7 * 1_440 + time[0] * 60 + time[1]
    budget = replace(BUDGET, limit_micro_usd=100_000)
    assert used_up_at(budget, 97_120, recent, now) == now + timedelta(days=2)


@pytest.mark.parametrize(("spent", "recent"), [(0, 0), (0, 480)])
def test_no_forecast_beyond_the_period_or_without_spend(spent: int, recent: int) -> None:
    # At 480 a week, 1,000 last for 14.6 days: into March.
    assert used_up_at(BUDGET, spent, recent, NOW) is None


@pytest.mark.parametrize("spent", [1_000, 1_001])
def test_what_is_used_up_is_used_up_now(spent: int) -> None:
    assert used_up_at(BUDGET, spent, 0, NOW) == NOW


def test_the_last_micro_dollar_is_used_up_later() -> None:
    week = NOW - datetime(2026, 2, 7, tzinfo=UTC)
    assert used_up_at(BUDGET, 999, 1, NOW) == NOW + week
    assert used_up_at(BUDGET, 999, 0, NOW) is None


def test_a_forecast_ends_before_the_period_and_after_ten_years() -> None:
    # 1,440 a day: what is left lasts until the first moment of March, and no second less.
    left = 14 * 1_440 + (24 - 15) * 60 - 30
    recent = 7 * 1_440 + 15 * 60 + 30
    budget = replace(BUDGET, limit_micro_usd=left)
    assert used_up_at(budget, 0, recent, NOW) is None
    assert used_up_at(budget, 1, recent, NOW) == datetime(2026, 2, 28, 23, 59, tzinfo=UTC)
    years = Budget(3650 * 1_440, "total", "warn")
    assert used_up_at(years, 0, recent, NOW) == NOW + timedelta(days=3650)
    assert used_up_at(replace(years, limit_micro_usd=3651 * 1_440), 0, recent, NOW) is None


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
