"""What an interval costs, to the micro-dollar."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.ids import charge_id_for
from services.cost.core.charges import (
    Usage,
    by_capacity,
    charge_id_of,
    charges,
    total_micro_usd,
    unpriced_kinds,
)
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


@pytest.mark.parametrize(("halves", "want"), [(1, 0), (3, 2), (5, 2), (7, 4), (9, 4), (11, 6)])
def test_every_half_is_rounded_to_even(halves: int, want: int) -> None:
    (charge,) = charges(usage(halves * timedelta(minutes=30)), book(("p", START, 1)))
    assert charge.amount_micro_usd == want


def test_an_amount_beyond_the_precision_of_a_float_is_exact() -> None:
    held = usage(timedelta(days=3000, microseconds=1), num_slots=9_999)
    (charge,) = charges(held, book(("p", START, 99_999_989)))
    microseconds = 3000 * 86_400_000_000 + 1
    assert charge.amount_micro_usd == round(
        Fraction(9_999 * microseconds * 99_999_989, 3_600_000_000)
    )
    assert isinstance(charge.amount_micro_usd, int)


def test_the_paid_time_and_the_platforms_follow_each_other_across_prices() -> None:
    prices = book(("p", START, 100), ("q", START + HOUR, 300))
    end = START + 3 * HOUR
    for paid, want in (
        (START, [(0, 100), (0, 600)]),
        (START + HOUR, [(100, 0), (0, 600)]),
        (START + 2 * HOUR, [(100, 0), (300, 300)]),
        (end, [(100, 0), (600, 0)]),
    ):
        held = replace(usage(3 * HOUR), paid_ends_at=paid)
        found = charges(held, prices)
        assert [(it.amount_micro_usd, it.platform_micro_usd) for it in found] == want
        assert total_micro_usd((held, held), prices) == 2 * sum(paid for paid, _ in want)


@pytest.mark.parametrize(
    ("is_spot", "correction", "purpose"),
    [(False, 0, "p"), (True, 0, "p+spot"), (False, 2, "p#2"), (True, 1, "p+spot#1")],
)
def test_the_form_of_the_ids_of_charges_stays(is_spot: bool, correction: int, purpose: str) -> None:
    assert charge_id_of("alloc", "p", is_spot, correction) == charge_id_for("alloc", purpose)


def test_kinds_of_slots_without_a_price_are_named() -> None:
    prices = book(("p", START + HOUR, 100))
    late, early = usage(HOUR, start=START + HOUR), replace(usage(2 * HOUR), pool="lab")
    assert unpriced_kinds((late, early), prices) == {("lab", "cpu")}


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
