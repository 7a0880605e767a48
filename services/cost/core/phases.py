"""What held slots were used for: starting, productive, checkpointing, lost, or still held.

The time from grant to release is cut at what is known of the run. From the grant until every pod
ran it was starting. What it did after its last good checkpoint is lost if it did not succeed and
saved nothing at its end. The time for which saving blocked training is checkpointing; it is taken
from the end of the productive time, because only its sum is known. After the paid end the platform
still held the slots.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from services.cost.core.charges import Usage, cost_of
from services.cost.core.prices import Period
from services.cost.core.steps import Steps


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


# Micro-dollars by which the rounded shares of a pool's step may differ from what was offered.
MOST_ROUNDED = 1_000

# The begin of a step, what the slots were used for in it, slots x microseconds, micro-dollars.
# A tuple: there are many.
Share = tuple[datetime, str, int, int]


@dataclass(slots=True)
class Amount:
    """Slots times microseconds, and money."""

    slot_microseconds: int = 0
    micro_usd: int = 0

    def add(self, slot_microseconds: int, micro_usd: int) -> None:
        self.slot_microseconds += slot_microseconds
        self.micro_usd += micro_usd

    @property
    def idle(self) -> "Amount | None":
        """What is idle of this, left of an offer: time, or only what the shares were rounded by.

        Shares are rounded one by one. Idle takes the difference, so that the sum is exact. A larger
        one is no part of it: then charges were made before a price was changed for the past.
        """
        time, cost = self.slot_microseconds, self.micro_usd
        is_repriced = cost < -MOST_ROUNDED or (not time and cost > MOST_ROUNDED)
        left = Amount(time, 0 if is_repriced else cost)
        return left if time > 0 or (not time and left.micro_usd) else None


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


def shares(usage: Usage, run: RunFacts, periods: Iterable[Period], steps: Steps) -> Iterator[Share]:
    """Time and money of a usage at the prices of these periods, one for each of its charges.

    There may be more than one share of a step and phase. The money of all steps adds up to the
    charges and the platform's own cost, and that of the hours of a day to that of the day.
    """
    for period in periods:
        due = time = 0
        for part in parts(usage, run):
            if part.phase is Phase.PLATFORM:
                # The last part. A charge rounds it and what is paid each on its own: so does this.
                due = time = 0
            first, last = max(part.starts_at, period.starts_at), min(part.ends_at, period.ends_at)
            if first >= last:
                continue
            for begin, microseconds in steps.pieces(first, last):
                slot_time = usage.num_slots * microseconds
                time += slot_time
                total = cost_of(time, period.micro_usd_per_slot_hour)
                if begin is not None:
                    yield begin, part.phase.value, slot_time, total - due
                due = total


def _within(moment: datetime, low: datetime, high: datetime) -> datetime:
    return min(max(moment, low), high)
