"""The price book: which price applies to a device type in a pool at a time.

A price applies from its `valid_from` until the next one of the same device type and pool begins.
Once a pool has its own price, that has precedence over prices for every pool. Time without any
price is charged 0 under the id `unpriced`, so that it is visible on the charge instead of missing.
"""

import itertools
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.cost.core.storage import StoragePrices

UNPRICED = "unpriced"


@dataclass(frozen=True, slots=True)
class Price:
    """`pool` None applies to every pool."""

    price_id: str
    device_type: str
    valid_from: datetime
    micro_usd_per_slot_hour: int
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """A half-open interval at one price."""

    starts_at: datetime
    ends_at: datetime
    price_id: str
    micro_usd_per_slot_hour: int


@dataclass(frozen=True, slots=True)
class PriceBook:
    prices: tuple[Price, ...]
    storage: StoragePrices = field(default_factory=StoragePrices)

    def price_at(self, pool: str, device_type: str, moment: datetime) -> Price | None:
        """The price that applies at `moment`, or None."""
        begun = [price for price in self._fitting(pool, device_type) if price.valid_from <= moment]
        # The pool's own price before those for all pools, then the one that began last.
        return max(begun, key=lambda it: (it.pool is not None, it.valid_from), default=None)

    def periods(
        self, pool: str, device_type: str, starts_at: datetime, ends_at: datetime
    ) -> tuple[Period, ...]:
        """The interval, split where the price changes; empty when it has no length."""
        if starts_at >= ends_at:
            return ()
        changes = {price.valid_from for price in self._fitting(pool, device_type)}
        edges = sorted({starts_at, ends_at, *(it for it in changes if starts_at < it < ends_at)})
        found: list[Period] = []
        for begin, end in itertools.pairwise(edges):
            period = self._period(pool, device_type, begin, end)
            if found and found[-1].price_id == period.price_id:
                # A price for all pools changed while the pool's own held.
                found[-1] = replace(found[-1], ends_at=end)
            else:
                found.append(period)
        return tuple(found)

    def _period(self, pool: str, device_type: str, begin: datetime, end: datetime) -> Period:
        price = self.price_at(pool, device_type, begin)
        if price is None:
            return Period(begin, end, UNPRICED, 0)
        return Period(begin, end, price.price_id, price.micro_usd_per_slot_hour)

    def _fitting(self, pool: str, device_type: str) -> list[Price]:
        return [
            price
            for price in self.prices
            if price.device_type == device_type and price.pool in (pool, None)
        ]


def problems(prices: tuple[Price, ...]) -> list[str]:
    """The errors in a price book, for its author; empty when there are none."""
    found = []
    ids = [price.price_id for price in prices]
    for price_id in sorted({item for item in ids if ids.count(item) > 1}):
        found.append(f"prices: the id {price_id!r} is used twice: give each price its own")
    if UNPRICED in ids:
        found.append(f"prices: the id {UNPRICED!r} is reserved: choose another")
    starts = [(price.pool, price.device_type, price.valid_from) for price in prices]
    for pool, device_type, start in sorted(
        {item for item in starts if starts.count(item) > 1}, key=str
    ):
        found.append(f"prices: two prices of {device_type} ({pool or 'all pools'}) begin {start}")
    return found
