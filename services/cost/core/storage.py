"""What stored checkpoints cost: bytes x time x price by day, in integer micro-dollars.

A gigabyte is 10^9 bytes, a month 30 days. A day's amount is exact and rounded once, half to even.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

GB_MONTH = 10**9 * (timedelta(days=30) // timedelta(microseconds=1))


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """Applies from the day `valid_from` until the next one begins."""

    price_id: str
    valid_from: date
    micro_usd_per_gb_month: int


@dataclass(frozen=True, slots=True)
class StoragePrices:
    """In the order of time. Before the first one, storage costs nothing."""

    prices: tuple[StoragePrice, ...] = ()

    def on(self, day: date) -> StoragePrice | None:
        begun = [price for price in self.prices if price.valid_from <= day]
        return begun[-1] if begun else None


def amount_micro_usd(byte_microseconds: int, price: StoragePrice) -> int:
    """`byte_microseconds`: each byte times how long it was stored on the day."""
    return round(Fraction(byte_microseconds * price.micro_usd_per_gb_month, GB_MONTH))


def days_to_charge(
    first_stored: date | None,
    begun: tuple[date, date] | None,
    prices: StoragePrices,
    now: datetime,
) -> list[date]:
    """The days that are over since an hour, so that nearly all events of them are here.

    `begun`: the first and the last day whose charging has begun. Days before them follow where an
    older checkpoint or an earlier price has become known since.
    """
    if first_stored is None or not prices.prices:
        return []
    first = max(first_stored, prices.prices[0].valid_from)
    end = (now.astimezone(UTC) - timedelta(hours=1)).date()
    days = [first + timedelta(days=number) for number in range((end - first).days)]
    return [day for day in days if begun is None or not begun[0] <= day <= begun[1]]
