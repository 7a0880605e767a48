"""A task of the service: what is spent per hour now, by class of tenants, for Prometheus.

It is looked up every few seconds, so a job that runs for weeks is seen before its charge.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.cost import store, store_accrual
from services.cost.core.prices import PriceBook, SlotKind
from services.cost.instruments import SPEND, UNPRICED_DEVICES, UNRELEASED
from services.cost.store import HeldSlots
from services.runtime.repeating import repeat
from services.runtime.service import Platform

LOOK_SECONDS = 15.0
DEFAULT_CLASS = "default"


@dataclass(frozen=True, slots=True)
class Spending:
    """Micro-dollars per hour by class, and the slots without a price by pool and device type."""

    by_class: Mapping[str, int]
    unpriced: Mapping[tuple[str, str], int]


def spending(
    held: Iterable[HeldSlots], book: PriceBook, classes: Mapping[str, str], now: datetime
) -> Spending:
    by_class: Counter[str] = Counter(dict.fromkeys((*classes.values(), DEFAULT_CLASS), 0))
    unpriced: Counter[tuple[str, str]] = Counter()
    for one in held:
        price = book.price_at(SlotKind(one.pool, one.device_type, one.is_spot), now)
        if price is None:
            unpriced[one.pool, one.device_type] += one.num_slots
            continue
        name = classes.get(one.tenant_id, DEFAULT_CLASS)
        by_class[name] += one.num_slots * price.micro_usd_per_slot_hour
    return Spending(by_class, unpriced)


class SpendingTask:
    def __init__(self, book: PriceBook, classes: Mapping[str, str]) -> None:
        self._book = book
        self._classes = classes

    async def run(self, platform: Platform) -> None:
        async def work() -> None:
            async with platform.database.connection() as connection:
                held = await store.held_slots(connection)
                UNRELEASED.set(await store_accrual.num_unreleased(connection))
            self.report(held, platform.clock.now())

        await repeat(work, platform.clock, LOOK_SECONDS, "spend per hour not measured")

    def report(self, held: Iterable[HeldSlots], now: datetime) -> None:
        found = spending(held, self._book, self._classes, now)
        for name, micro_usd in found.by_class.items():
            SPEND.labels(name).set(micro_usd / 1_000_000)
        UNPRICED_DEVICES.clear()
        for (pool, device_type), number in found.unpriced.items():
            UNPRICED_DEVICES.labels(pool, device_type).set(number)
