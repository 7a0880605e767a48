"""What held slots were used for: starting, productive, checkpointing, lost, or still held.

The time from grant to release is cut at what is known of the run. From the grant until every pod
ran it was starting. What it did after its last good checkpoint is lost if it did not succeed and
saved nothing at its end. The time for which saving blocked training is checkpointing; it is taken
from the end of the productive time, because only its sum is known. After the paid end the platform
still held the slots.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from services.cost.core.charges import HOUR_MICROSECONDS, Usage
from services.cost.core.prices import Period

_MICROSECOND = timedelta(microseconds=1)


class Phase(StrEnum):
    STARTING = "starting"
    PRODUCTIVE = "productive"
    CHECKPOINTING = "checkpointing"
    LOST = "lost"
    PLATFORM = "platform"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of the run that held the slots.

    `started_at`: every pod ran. `kept_until`: what it did until then is in a checkpoint or in its
    result; None: nothing is lost. `blocked`: for how long saving stopped training, in sum.
    """

    started_at: datetime | None = None
    kept_until: datetime | None = None
    blocked: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Part:
    """A half-open interval of a usage in one phase."""

    phase: Phase
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Key:
    day: date
    phase: Phase


@dataclass(slots=True)
class Amount:
    """Slots times microseconds, and money."""

    slot_microseconds: int = 0
    micro_usd: int = 0


def parts(usage: Usage, run: RunFacts) -> tuple[Part, ...]:
    """The phases in the order of time, without gaps, from the begin of the usage to its end."""
    begin, paid, end = usage.starts_at, usage.paid_ends_at, usage.ends_at
    started = paid if run.started_at is None else _within(run.started_at, begin, paid)
    kept = paid if run.kept_until is None else _within(run.kept_until, started, paid)
    saving = max(started, kept - run.blocked)
    edges = (begin, started, saving, kept, paid, end)
    found = zip(
        (Phase.STARTING, Phase.PRODUCTIVE, Phase.CHECKPOINTING, Phase.LOST, Phase.PLATFORM),
        edges,
        edges[1:],
        strict=False,
    )
    return tuple(Part(phase, first, last) for phase, first, last in found if first < last)


def by_day_and_phase(usage: Usage, run: RunFacts, periods: Iterable[Period]) -> dict[Key, Amount]:
    """Time and money of a usage at the prices of these periods, one for each of its charges.

    The money adds up to the charges and the platform's own cost.
    """
    found: dict[Key, Amount] = {}
    for period in periods:
        # A charge rounds its paid part and the platform's part each on its own: so does this.
        due: Counter[bool] = Counter()
        time: Counter[bool] = Counter()
        for part in parts(usage, run):
            is_paid = part.phase is not Phase.PLATFORM
            for piece in _pieces(part, period):
                slot_time = usage.num_slots * ((piece.ends_at - piece.starts_at) // _MICROSECOND)
                time[is_paid] += slot_time
                total = money(time[is_paid], period.micro_usd_per_slot_hour)
                amount = found.setdefault(Key(day_of(piece), piece.phase), Amount())
                amount.slot_microseconds += slot_time
                amount.micro_usd += total - due[is_paid]
                due[is_paid] = total
    return found


def money(slot_microseconds: int, micro_usd_per_slot_hour: int) -> int:
    """Exact, rounded once, half to even."""
    return round(Fraction(slot_microseconds * micro_usd_per_slot_hour, HOUR_MICROSECONDS))


def day_of(part: Part) -> date:
    """The day (UTC) of a part that lies within one."""
    return part.starts_at.astimezone(UTC).date()


def days_within(part: Part) -> Iterator[Part]:
    """The part, cut at the midnights of UTC."""
    first = part.starts_at
    midnight = first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while first < part.ends_at:
        midnight += timedelta(days=1)
        last = min(midnight, part.ends_at)
        yield Part(part.phase, first, last)
        first = last


def _pieces(part: Part, period: Period) -> Iterator[Part]:
    starts_at = max(part.starts_at, period.starts_at)
    ends_at = min(part.ends_at, period.ends_at)
    if starts_at < ends_at:
        yield from days_within(Part(part.phase, starts_at, ends_at))


def _within(moment: datetime, low: datetime, high: datetime) -> datetime:
    return min(max(moment, low), high)
