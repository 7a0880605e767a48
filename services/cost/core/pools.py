"""What a pool costs in a day or an hour, and who had it: every slot-second is in exactly one row.

What nodes offered is the whole; what runs held is split by tenant and phase; the rest is idle. So
the rows of a day add up to the pool's cost exactly, and the hours of a day to the day. A node that
loses slots while a run holds them offers at least what is held, and so does one that is removed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import groupby, pairwise

from services.cost.core.charges import cost_of
from services.cost.core.phases import Amount, Share
from services.cost.core.prices import Period, PriceBook, SlotKind
from services.cost.core.steps import Steps, midnight

IDLE = "idle"
OTHERS = "others"  # all other tenants
# Held beyond what was offered: it makes the whole larger, and is no share of it.
UNOFFERED = "unoffered"


@dataclass(frozen=True, slots=True)
class Offer:
    """Slots that a node offered from `starts_at` (in) to `ends_at` (out)."""

    pool: str
    device_type: str
    num_slots: int
    starts_at: datetime
    ends_at: datetime
    is_spot: bool = False


@dataclass(frozen=True, slots=True, order=True)
class PoolTime:
    """A day or an hour (UTC) of a pool."""

    starts_at: datetime
    pool: str
    device_type: str

    @property
    def day(self) -> date:
        return self.starts_at.date()

    @classmethod
    def of_day(cls, day: date, pool: str, device_type: str) -> "PoolTime":
        return cls(midnight(day), pool, device_type)


@dataclass(frozen=True, slots=True)
class Row:
    """One share of a pool's time. `tenant_id` is empty for what nobody is charged for; `job_id` is
    empty for that, and where the row is of all jobs of a tenant. `is_spot`: all of it was of spot
    slots."""

    of: PoolTime
    kind: str
    tenant_id: str
    slot_microseconds: int
    micro_usd: int
    job_id: str = ""
    is_spot: bool = False


def offered(offers: Iterable[Offer], book: PriceBook, steps: Steps) -> dict[PoolTime, Amount]:
    """Time and money of what nodes offered, by step.

    Each day is rounded on its own, so that it is the same however many days are looked at.
    """
    by_kind: dict[SlotKind, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_kind[SlotKind(offer.pool, offer.device_type, offer.is_spot)].append(offer)
    found: dict[PoolTime, Amount] = {}
    for kind, of_kind in by_kind.items():
        starts_at = min(offer.starts_at for offer in of_kind)
        ends_at = max(offer.ends_at for offer in of_kind)
        periods = book.periods(kind, starts_at, ends_at)
        for begin, time, cost in _amounts(of_kind, periods, steps):
            amount = found.setdefault(PoolTime(begin, kind.pool, kind.device_type), Amount())
            amount.add(time, cost)
    return found


def unoffered_shares(
    excess: Iterable[Offer], periods: Iterable[Period], steps: Steps
) -> Iterator[Share]:
    """Time and money of what an allocation held beyond the offers, at the prices of its charges."""
    for begin, time, cost in _amounts(excess, periods, steps):
        yield begin, UNOFFERED, time, cost


def _amounts(
    offers: Iterable[Offer], periods: Iterable[Period], steps: Steps
) -> Iterator[tuple[datetime, int, int]]:
    """The begin of each step, slots x microseconds and micro-dollars in it; once for each period.

    All offers are of one kind.
    """
    changes: Counter[datetime] = Counter()
    for offer in offers:
        changes[offer.starts_at] += offer.num_slots
        changes[offer.ends_at] -= offer.num_slots
    moments = sorted(changes)
    for period in periods:
        times: dict[datetime, int] = {}
        num_slots = 0
        for first, last in pairwise(moments):
            num_slots += changes[first]
            first, last = max(first, period.starts_at), min(last, period.ends_at)
            if num_slots and first < last:
                for begin, microseconds in steps.pieces(first, last):
                    if begin is not None:
                        times[begin] = times.get(begin, 0) + num_slots * microseconds
        yield from _priced(times, period.micro_usd_per_slot_hour)


def _priced(times: dict[datetime, int], price: int) -> Iterator[tuple[datetime, int, int]]:
    """The time of each step in order, with its money: rounded as it grows, from zero each day."""
    for _, of_day in groupby(times.items(), key=lambda item: item[0].date()):
        due = sum_of_day = 0
        for begin, time in of_day:
            sum_of_day += time
            total = cost_of(sum_of_day, price)
            yield begin, time, total - due
            due = total


def unoffered(held: Offer, numbers: Sequence[int], offers: Iterable[Offer]) -> Iterator[Offer]:
    """What was held of a node beyond its offers; `held` is the slots as if they were offered.

    `numbers`: of its slots. A node offers those from 0 on: so none is beyond its offers for one
    allocation and offered to another.
    """
    first = held.starts_at
    for offer in sorted(offers, key=lambda each: each.starts_at):
        last = min(offer.starts_at, held.ends_at)
        if first < last:
            yield replace(held, starts_at=first, ends_at=last)
        first = max(first, offer.starts_at)
        last = min(offer.ends_at, held.ends_at)
        if first < last:
            missing = sum(number >= offer.num_slots for number in numbers)
            if missing:
                yield replace(held, num_slots=missing, starts_at=first, ends_at=last)
            first = last
    if first < held.ends_at:
        yield replace(held, starts_at=first)


def rows(offers: dict[PoolTime, Amount], held: Iterable[Row]) -> tuple[Row, ...]:
    """The shares of every pool's day or hour, idle included, in a fixed order."""
    shares: dict[PoolTime, list[Row]] = defaultdict(list)
    for row in held:
        shares[row.of].append(row)
    found: list[Row] = []
    for key in sorted(shares.keys() | offers.keys()):
        whole = offers.get(key, Amount())
        extra = [row for row in shares.get(key, ()) if row.kind == UNOFFERED]
        of_day = [row for row in shares.get(key, ()) if row.kind != UNOFFERED]
        of_day.sort(key=lambda row: (row.tenant_id, row.kind))
        left = Amount(
            whole.slot_microseconds + _time(extra) - _time(of_day),
            whole.micro_usd + _cost(extra) - _cost(of_day),
        )
        found += of_day
        if idle := left.idle:
            found.append(Row(key, IDLE, "", idle.slot_microseconds, idle.micro_usd))
    return tuple(found)


def of_tenant(found: Iterable[Row], tenant_id: str) -> tuple[Row, ...]:
    """The same as a tenant sees it: what the others had is one share of each pool and kind."""
    sums: dict[tuple[PoolTime, str, str], Row] = {}
    for row in found:
        owner = row.tenant_id if row.tenant_id in ("", tenant_id) else OTHERS
        key = (row.of, row.kind, owner)
        known = sums.get(key) or Row(row.of, row.kind, owner, 0, 0)
        sums[key] = replace(
            known,
            slot_microseconds=known.slot_microseconds + row.slot_microseconds,
            micro_usd=known.micro_usd + row.micro_usd,
        )
    return tuple(sums.values())


def _time(of: Iterable[Row]) -> int:
    return sum(row.slot_microseconds for row in of)


def _cost(of: Iterable[Row]) -> int:
    return sum(row.micro_usd for row in of)
