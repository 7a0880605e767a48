"""What a pool costs in a day, and who had it: every slot-second is in exactly one row.

What nodes offered is the whole; what runs held is split by tenant and phase; the rest is idle. So
the rows of a day add up to the pool's cost exactly. A node that loses slots while a run holds them
offers at least what is held.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from services.cost.core.phases import Amount, Part, Phase, day_of, days_within, money
from services.cost.core.prices import PriceBook

IDLE = "idle"
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Offer:
    """Slots that a node offered from `starts_at` (in) to `ends_at` (out)."""

    pool: str
    device_type: str
    num_slots: int
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True, order=True)
class PoolDay:
    day: date
    pool: str
    device_type: str


@dataclass(frozen=True, slots=True)
class Row:
    """One share of a pool's day. `tenant_id` is empty for what nobody is charged for."""

    of: PoolDay
    kind: str
    tenant_id: str
    slot_microseconds: int
    micro_usd: int


def offered(offer: Offer, book: PriceBook) -> dict[PoolDay, Amount]:
    """Time and money of what a node offered, by day."""
    found: dict[PoolDay, Amount] = {}
    for period in book.periods(offer.pool, offer.device_type, offer.starts_at, offer.ends_at):
        due = time = 0
        for piece in days_within(Part(Phase.PRODUCTIVE, period.starts_at, period.ends_at)):
            slot_time = offer.num_slots * ((piece.ends_at - piece.starts_at) // _MICROSECOND)
            time += slot_time
            total = money(time, period.micro_usd_per_slot_hour)
            key = PoolDay(day_of(piece), offer.pool, offer.device_type)
            amount = found.setdefault(key, Amount())
            amount.slot_microseconds += slot_time
            amount.micro_usd += total - due
            due = total
    return found


def rows(offers: dict[PoolDay, Amount], held: Iterable[Row]) -> tuple[Row, ...]:
    """The shares of every pool's day, idle included, in a fixed order."""
    shares: dict[PoolDay, list[Row]] = defaultdict(list)
    for row in held:
        shares[row.of].append(row)
    found: list[Row] = []
    for key in sorted(shares.keys() | offers.keys()):
        whole = offers.get(key, Amount())
        of_day = sorted(shares.get(key, ()), key=lambda row: (row.tenant_id, row.kind))
        left = whole.slot_microseconds - sum(row.slot_microseconds for row in of_day)
        cost = whole.micro_usd - sum(row.micro_usd for row in of_day)
        found += of_day
        # Shares are rounded one by one: the rest takes the difference, so that the sum is exact.
        if left > 0 or (left == 0 and cost):
            found.append(Row(key, IDLE, "", left, cost))
    return tuple(found)
