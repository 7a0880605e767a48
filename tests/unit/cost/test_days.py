"""A charge by days: whole micro-dollars that add up to it."""

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.cost.core.charges import amount_micro_usd
from services.cost.core.days import by_day
from services.cost.core.prices import Period

NOON = datetime(2026, 2, 1, 12, tzinfo=UTC)


def test_each_day_has_its_time() -> None:
    period = Period(NOON, NOON + timedelta(days=2), "p", 1_000_000)
    assert list(by_day(2, period)) == [
        (date(2026, 2, 1), 24_000_000),
        (date(2026, 2, 2), 48_000_000),
        (date(2026, 2, 3), 24_000_000),
    ]


def test_a_day_that_ends_at_midnight_is_not_the_next_one() -> None:
    midnight = datetime(2026, 2, 2, tzinfo=UTC)
    period = Period(midnight - timedelta(hours=1), midnight, "p", 1_000_000)
    assert list(by_day(1, period)) == [(date(2026, 2, 1), 1_000_000)]


def test_no_time_is_no_day() -> None:
    assert list(by_day(1, Period(NOON, NOON, "p", 1))) == []


@given(
    num_slots=st.integers(1, 64),
    seconds=st.integers(0, 10 * 86_400),
    microseconds=st.integers(0, 999_999),
    price=st.integers(0, 10_000_000),
)
def test_the_days_add_up_to_the_charge(
    num_slots: int, seconds: int, microseconds: int, price: int
) -> None:
    ends_at = NOON + timedelta(seconds=seconds, microseconds=microseconds)
    period = Period(NOON, ends_at, "p", price)
    parts = list(by_day(num_slots, period))
    assert sum(amount for _, amount in parts) == amount_micro_usd(num_slots, period)
    assert [day for day, _ in parts] == sorted({day for day, _ in parts})
    assert all(amount >= 0 for _, amount in parts)
