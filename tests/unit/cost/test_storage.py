"""What stored checkpoints cost, and which days are charged."""

from datetime import UTC, date, datetime

import pytest

from services.cost.core.storage import (
    GB_MONTH,
    StoragePrice,
    StoragePrices,
    amount_micro_usd,
    days_to_charge,
)


def day(number: int) -> date:
    return date(2026, 2, number)


PRICES = StoragePrices((StoragePrice("old", day(3), 23_000), StoragePrice("new", day(10), 20_000)))


@pytest.mark.parametrize(
    ("byte_microseconds", "price", "want"),
    [
        (GB_MONTH, 23_000, 23_000),
        (GB_MONTH // 30, 30_000, 1_000),
        (GB_MONTH // 2, 1, 0),
        (GB_MONTH // 2, 3, 2),
        (0, 23_000, 0),
    ],
)
def test_a_gigabyte_for_30_days_costs_the_price_rounded_half_to_even(
    byte_microseconds: int, price: int, want: int
) -> None:
    assert amount_micro_usd(byte_microseconds, StoragePrice("p", day(1), price)) == want


@pytest.mark.parametrize(
    ("on", "want"), [(2, None), (3, "old"), (9, "old"), (10, "new"), (28, "new")]
)
def test_a_price_applies_from_its_day_until_the_next(on: int, want: str | None) -> None:
    price = PRICES.on(day(on))
    assert (price and price.price_id) == want


@pytest.mark.parametrize(
    ("first_stored", "begun", "now", "want"),
    [
        pytest.param(5, None, (8, 1), [5, 6, 7], id="from the first checkpoint to yesterday"),
        pytest.param(5, None, (8, 0), [5, 6], id="yesterday is over for less than an hour"),
        pytest.param(1, None, (5, 1), [3, 4], id="before the first price nothing is charged"),
        pytest.param(7, None, (7, 5), [], id="the first day is not over"),
        pytest.param(None, None, (8, 1), [], id="nothing was stored"),
        pytest.param(4, (5, 6), (9, 1), [4, 7, 8], id="days that have begun are charged already"),
        pytest.param(5, (5, 7), (8, 1), [], id="all have begun"),
    ],
)
def test_days_are_charged_once_when_they_are_over(
    first_stored: int | None,
    begun: tuple[int, int] | None,
    now: tuple[int, int],
    want: list[int],
) -> None:
    found = days_to_charge(
        None if first_stored is None else day(first_stored),
        None if begun is None else (day(begun[0]), day(begun[1])),
        PRICES,
        datetime(2026, 2, now[0], now[1], tzinfo=UTC),
    )
    assert found == [day(number) for number in want]


def test_without_a_price_no_day_is_charged() -> None:
    now = datetime(2026, 2, 8, tzinfo=UTC)
    assert days_to_charge(day(1), None, StoragePrices(), now) == []
