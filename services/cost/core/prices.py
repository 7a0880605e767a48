"""The price book: which price holds for a device type in a pool at a time.

A price holds from its `valid_from` until the next one of the same device type and pool begins. A
price for a named pool goes before one for every pool. Time without any price is priced at nothing
under the id `unpriced`, so that it is seen on the charge instead of being left out.
"""

import itertools
from dataclasses import dataclass
from datetime import datetime

UNPRICED = "unpriced"


@dataclass(frozen=True, slots=True)
class Price:
    """`pool` None holds for every pool."""

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

    def price_at(self, pool: str, device_type: str, moment: datetime) -> Price | None:
        """The price that holds at `moment`, or None."""
        holding = [price for price in self._line(pool, device_type) if price.valid_from <= moment]
        return holding[-1] if holding else None

    def periods(
        self, pool: str, device_type: str, starts_at: datetime, ends_at: datetime
    ) -> tuple[Period, ...]:
        """The interval cut where the price changes; empty when it has no length."""
        changes = [
            price.valid_from
            for price in self._line(pool, device_type)
            if starts_at < price.valid_from < ends_at
        ]
        edges = [starts_at, *changes, ends_at]
        return tuple(
            self._period(pool, device_type, begin, end)
            for begin, end in itertools.pairwise(edges)
            if begin < end
        )

    def _period(self, pool: str, device_type: str, begin: datetime, end: datetime) -> Period:
        price = self.price_at(pool, device_type, begin)
        if price is None:
            return Period(begin, end, UNPRICED, 0)
        return Period(begin, end, price.price_id, price.micro_usd_per_slot_hour)

    def _line(self, pool: str, device_type: str) -> list[Price]:
        """The prices of this device type in order of time: the pool's own, else those for all."""
        fitting = [price for price in self.prices if price.device_type == device_type]
        own = [price for price in fitting if price.pool == pool]
        chosen = own or [price for price in fitting if price.pool is None]
        return sorted(chosen, key=lambda price: (price.valid_from, price.price_id))


def problems(prices: tuple[Price, ...]) -> list[str]:
    """What is wrong with a price book, for its author; empty when nothing is."""
    found = []
    ids = [price.price_id for price in prices]
    for price_id in sorted({item for item in ids if ids.count(item) > 1}):
        found.append(f"prices: the id {price_id!r} stands twice: give each price its own")
    if UNPRICED in ids:
        found.append(f"prices: the id {UNPRICED!r} is reserved: choose another")
    starts = [(price.pool, price.device_type, price.valid_from) for price in prices]
    for pool, device_type, start in sorted(
        {item for item in starts if starts.count(item) > 1}, key=str
    ):
        found.append(f"prices: two prices of {device_type} ({pool or 'all pools'}) begin {start}")
    return found
