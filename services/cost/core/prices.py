"""The price book: which price applies to a device type in a pool at a time.

A price applies from its `valid_from` until the next one of the same device type, pool and capacity
begins. Once a pool has its own price, that has precedence over prices for every pool; then a price
of the capacity (spot, or on demand) over those of both. Time without any
price is charged 0 under the id `unpriced`, so that it is visible on the charge instead of missing.
"""

import itertools
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.cost.core.storage import StoragePrices

UNPRICED = "unpriced"
_CAPACITY = {None: "", True: "spot", False: "on demand"}


@dataclass(frozen=True, slots=True)
class SlotKind:
    """What a price depends on, besides the time. `is_spot`: its provider may take the node away."""

    pool: str
    device_type: str
    is_spot: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """`pool` None applies to every pool; `is_spot` None to spot and on-demand slots alike."""

    price_id: str
    device_type: str
    valid_from: datetime
    micro_usd_per_slot_hour: int
    pool: str | None = None
    is_spot: bool | None = None


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

    def price_at(self, slots: SlotKind, moment: datetime) -> Price | None:
        """The price that applies at `moment`, or None."""
        begun = [price for price in self._fitting(slots) if price.valid_from <= moment]
        # The most specific one, then the one that began last.
        return max(
            begun,
            key=lambda it: (it.pool is not None, it.is_spot is not None, it.valid_from),
            default=None,
        )

    def periods(
        self, slots: SlotKind, starts_at: datetime, ends_at: datetime
    ) -> tuple[Period, ...]:
        """The interval, split where the price changes; empty when it has no length."""
        if starts_at >= ends_at:
            return ()
        changes = {price.valid_from for price in self._fitting(slots)}
        edges = sorted({starts_at, ends_at, *(it for it in changes if starts_at < it < ends_at)})
        found: list[Period] = []
        for begin, end in itertools.pairwise(edges):
            period = self._period(slots, begin, end)
            if found and found[-1].price_id == period.price_id:
                # A less specific price changed while this one held.
                found[-1] = replace(found[-1], ends_at=end)
            else:
                found.append(period)
        return tuple(found)

    def _period(self, slots: SlotKind, begin: datetime, end: datetime) -> Period:
        price = self.price_at(slots, begin)
        if price is None:
            return Period(begin, end, UNPRICED, 0)
        return Period(begin, end, price.price_id, price.micro_usd_per_slot_hour)

    def _fitting(self, slots: SlotKind) -> list[Price]:
        return [
            price
            for price in self.prices
            if price.device_type == slots.device_type
            and price.pool in (slots.pool, None)
            and price.is_spot in (slots.is_spot, None)
        ]


def problems(prices: tuple[Price, ...]) -> list[str]:
    """The errors in a price book, for its author; empty when there are none."""
    found = []
    ids = [price.price_id for price in prices]
    for price_id in sorted({item for item in ids if ids.count(item) > 1}):
        found.append(f"prices: the id {price_id!r} is used twice: give each price its own")
    if UNPRICED in ids:
        found.append(f"prices: the id {UNPRICED!r} is reserved: choose another")
    starts = [(it.pool, it.device_type, it.is_spot, it.valid_from) for it in prices]
    for pool, device_type, is_spot, start in sorted(
        {item for item in starts if starts.count(item) > 1}, key=str
    ):
        of = ", ".join(filter(None, (pool or "all pools", _CAPACITY[is_spot])))
        found.append(f"prices: two prices of {device_type} ({of}) begin {start}")
    return found
