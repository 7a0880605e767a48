"""What an interval costs, to the micro-dollar."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from services.cost.core.charges import Usage, by_capacity, charges, total_micro_usd
from services.cost.core.prices import Price, PriceBook

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def usage(duration: timedelta, *, num_slots: int = 1, start: datetime = START) -> Usage:
    end = start + duration
    return Usage("alloc_1", "default", "cpu", num_slots, start, end, end)


def book(*prices: tuple[str, datetime, int]) -> PriceBook:
    return PriceBook(tuple(Price(name, "cpu", begin, price) for name, begin, price in prices))


def test_an_hour_of_two_slots() -> None:
    (charge,) = charges(usage(HOUR, num_slots=2), book(("p", START, 48_000)))
    assert charge.amount_micro_usd == 96_000


def test_halves_are_rounded_to_even() -> None:
    prices = book(("p", START, 1))
    half, one_and_a_half = timedelta(minutes=30), timedelta(minutes=90)
    assert total_micro_usd((usage(half),), prices) == 0
    assert total_micro_usd((usage(one_and_a_half),), prices) == 2


def test_one_charge_per_price() -> None:
    prices = book(("p", START, 100), ("q", START + HOUR, 300))
    found = charges(usage(2 * HOUR), prices)
    assert [(item.period.price_id, item.amount_micro_usd) for item in found] == [
        ("p", 100),
        ("q", 300),
    ]
    assert len({item.charge_id for item in found}) == 2


def test_the_same_usage_makes_the_same_charge_ids() -> None:
    prices = book(("p", START, 100))
    assert charges(usage(HOUR), prices) == charges(usage(HOUR), prices)


@given(
    microseconds=st.integers(1, 10**13),
    num_slots=st.integers(1, 10_000),
    price=st.integers(0, 10**9),
    change=st.integers(1, 10**13),
)
def test_cutting_an_interval_moves_at_most_a_rounding(
    microseconds: int, num_slots: int, price: int, change: int
) -> None:
    """At one price, under two ids, the sum differs from the exact product by half a unit each."""
    prices = book(("p", START, price), ("q", START + timedelta(microseconds=change), price))
    whole = usage(timedelta(microseconds=microseconds), num_slots=num_slots)
    exact = Fraction(num_slots * microseconds * price, 3_600_000_000)
    assert abs(total_micro_usd((whole,), prices) - exact) <= 1


def test_spot_and_other_slots_of_an_allocation_are_charged_apart() -> None:
    whole = usage(HOUR, num_slots=5)
    prices = PriceBook(
        (Price("p", "cpu", START, 100), Price("q", "cpu", START + HOUR / 2, 40, is_spot=True))
    )
    found = [each for part in by_capacity(whole, 2) for each in charges(part, prices)]
    assert [
        (it.period.price_id, it.is_spot, it.num_slots, it.amount_micro_usd) for it in found
    ] == [
        ("p", False, 3, 300),
        ("p", True, 2, 100),
        ("q", True, 2, 40),
    ]
    assert len({it.charge_id for it in found}) == 3
    assert by_capacity(whole, 0) == (whole,)
    assert charges(whole, prices)[0].charge_id == found[0].charge_id, "as before there was spot"
