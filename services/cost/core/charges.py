"""What an allocation costs: one charge per price period, in integer micro-dollars.

amount = slots x time x price, exact, rounded once, half to even (docs/architecture.md, rule 13).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from drivetrain_schemas.ids import charge_id_for
from services.cost.core.prices import UNPRICED, Period, PriceBook

HOUR_MICROSECONDS = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Slots of one kind that an allocation held from `starts_at` (in) to `ends_at` (out)."""

    allocation_id: str
    pool: str
    device_type: str
    num_slots: int
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Charge:
    charge_id: str
    period: Period
    amount_micro_usd: int


def charges(usage: Usage, book: PriceBook) -> tuple[Charge, ...]:
    """One charge per price that held meanwhile."""
    periods = book.periods(usage.pool, usage.device_type, usage.starts_at, usage.ends_at)
    return tuple(
        Charge(
            charge_id_for(usage.allocation_id, period.price_id),
            period,
            amount_micro_usd(usage.num_slots, period),
        )
        for period in periods
    )


def amount_micro_usd(num_slots: int, period: Period) -> int:
    """Exact product, rounded half to even (`round` of a Fraction does that)."""
    microseconds = (period.ends_at - period.starts_at) // timedelta(microseconds=1)
    slot_time = num_slots * microseconds
    return round(Fraction(slot_time * period.micro_usd_per_slot_hour, HOUR_MICROSECONDS))


def total_micro_usd(usages: tuple[Usage, ...], book: PriceBook) -> int:
    """What all these would be charged."""
    return sum(charge.amount_micro_usd for usage in usages for charge in charges(usage, book))


def unpriced_kinds(usages: tuple[Usage, ...], book: PriceBook) -> set[tuple[str, str]]:
    """The pools and device types for which, all or part of the time, no price holds."""
    return {
        (usage.pool, usage.device_type)
        for usage in usages
        for charge in charges(usage, book)
        if charge.period.price_id == UNPRICED
    }
