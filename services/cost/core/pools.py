"""What a pool costs in a day, and who had it: every slot-second is in exactly one row.

What nodes offered is the whole; what runs held is split by tenant and phase; the rest is idle. So
the rows of a day add up to the pool's cost exactly. A node that loses slots while a run holds them
offers at least what is held, and so does one that is removed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from services.cost.core.phases import Amount, Part, Phase, day_of, days_within, money
from services.cost.core.prices import PriceBook

IDLE = "idle"
# Held beyond what was offered: it makes the whole larger, and is no share of it.
UNOFFERED = "unoffered"
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
    """One share of a pool's day. `tenant_id` is empty for what nobody is charged for; `job_id` is
    empty for that, and where the row is of all jobs of a tenant."""

    of: PoolDay
    kind: str
    tenant_id: str
    slot_microseconds: int
    micro_usd: int
    job_id: str = ""


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


def unoffered(held: Offer, offers: Iterable[Offer]) -> Iterator[Offer]:
    """What was held of a node beyond its offers; `held` is the slots as if they were offered."""
    first = held.starts_at
    for offer in sorted(offers, key=lambda each: each.starts_at):
        last = min(offer.starts_at, held.ends_at)
        if first < last:
            yield replace(held, starts_at=first, ends_at=last)
        first = max(first, offer.starts_at)
        last = min(offer.ends_at, held.ends_at)
        if first < last:
            if offer.num_slots < held.num_slots:
                missing = held.num_slots - offer.num_slots
                yield replace(held, num_slots=missing, starts_at=first, ends_at=last)
            first = last
    if first < held.ends_at:
        yield replace(held, starts_at=first)


def rows(offers: dict[PoolDay, Amount], held: Iterable[Row]) -> tuple[Row, ...]:
    """The shares of every pool's day, idle included, in a fixed order."""
    shares: dict[PoolDay, list[Row]] = defaultdict(list)
    for row in held:
        shares[row.of].append(row)
    found: list[Row] = []
    for key in sorted(shares.keys() | offers.keys()):
        whole = offers.get(key, Amount())
        extra = [row for row in shares.get(key, ()) if row.kind == UNOFFERED]
        of_day = [row for row in shares.get(key, ()) if row.kind != UNOFFERED]
        of_day.sort(key=lambda row: (row.tenant_id, row.kind))
        left = whole.slot_microseconds + _time(extra) - _time(of_day)
        cost = whole.micro_usd + _cost(extra) - _cost(of_day)
        found += of_day
        # Shares are rounded one by one: the rest takes the difference, so that the sum is exact.
        if left > 0 or (left == 0 and cost):
            found.append(Row(key, IDLE, "", left, cost))
    return tuple(found)


def _time(of: Iterable[Row]) -> int:
    return sum(row.slot_microseconds for row in of)


def _cost(of: Iterable[Row]) -> int:
    return sum(row.micro_usd for row in of)
