"""What an allocation costs: one charge per price period, in integer micro-dollars.

amount = slots x time x price, exact, rounded once, half to even (docs/architecture.md, rule 13).
The owner is charged until `paid_ends_at`; the time after it, in which the platform still held the
slots, is priced the same way and charged to nobody.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drivetrain_schemas.ids import charge_id_for
from services.cost.core.prices import UNPRICED, Period, PriceBook, SlotKind

HOUR_MICROSECONDS = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Slots of one kind that an allocation held from `starts_at` (in) to `ends_at` (out).

    Their owner pays until `paid_ends_at`. An allocation on spot nodes and others is two usages.
    """

    allocation_id: str
    pool: str
    device_type: str
    num_slots: int
    starts_at: datetime
    paid_ends_at: datetime
    ends_at: datetime
    is_spot: bool = False

    @property
    def kind(self) -> SlotKind:
        return SlotKind(self.pool, self.device_type, self.is_spot)


@dataclass(frozen=True, slots=True)
class Charge:
    """`period` is the paid time, `platform` what follows it at the same price; either may be empty.

    `correction` counts how often the allocation's charges were replaced before.
    """

    charge_id: str
    period: Period
    platform: Period
    num_slots: int
    amount_micro_usd: int
    platform_micro_usd: int
    is_spot: bool = False
    correction: int = 0


def by_capacity(usage: Usage, num_spot_slots: int) -> tuple[Usage, ...]:
    """All slots of an allocation as usages of one capacity each."""
    parts = (
        replace(usage, num_slots=usage.num_slots - num_spot_slots),
        replace(usage, num_slots=num_spot_slots, is_spot=True),
    )
    return tuple(part for part in parts if part.num_slots)


def charges(usage: Usage, book: PriceBook, correction: int = 0) -> tuple[Charge, ...]:
    """One charge per price that applied during the usage."""
    periods = book.periods(usage.kind, usage.starts_at, usage.ends_at)
    return tuple(_charge(usage, period, correction) for period in periods)


def _charge(usage: Usage, period: Period, correction: int) -> Charge:
    paid_ends_at = min(max(usage.paid_ends_at, period.starts_at), period.ends_at)
    paid, platform = replace(period, ends_at=paid_ends_at), replace(period, starts_at=paid_ends_at)
    return Charge(
        charge_id=charge_id_of(usage.allocation_id, period.price_id, usage.is_spot, correction),
        period=paid,
        platform=platform,
        num_slots=usage.num_slots,
        amount_micro_usd=amount_micro_usd(usage.num_slots, paid),
        platform_micro_usd=amount_micro_usd(usage.num_slots, platform),
        is_spot=usage.is_spot,
        correction=correction,
    )


def charge_id_of(
    allocation_id: str, price_id: str, is_spot: bool = False, correction: int = 0
) -> str:
    """The first charge of on-demand slots for a price keeps the original form of its id."""
    purpose = f"{price_id}+spot" if is_spot else price_id  # no price's id has a plus sign
    return charge_id_for(allocation_id, f"{purpose}#{correction}" if correction else purpose)


def reversal_id_of(charge_id: str) -> str:
    """The id of the row that reverses this charge; there is at most one."""
    return charge_id_for(charge_id, "reversed")


def amount_micro_usd(num_slots: int, period: Period) -> int:
    """The amount for these slots in this period."""
    microseconds = (period.ends_at - period.starts_at) // timedelta(microseconds=1)
    return cost_of(num_slots * microseconds, period.micro_usd_per_slot_hour)


def cost_of(slot_microseconds: int, micro_usd_per_slot_hour: int) -> int:
    """Exact, rounded once, half to even; the database's function of this name does the same."""
    whole, rest = divmod(slot_microseconds * micro_usd_per_slot_hour, HOUR_MICROSECONDS)
    is_up = 2 * rest > HOUR_MICROSECONDS or (2 * rest == HOUR_MICROSECONDS and whole % 2 == 1)
    return whole + is_up


def total_micro_usd(usages: tuple[Usage, ...], book: PriceBook) -> int:
    """The sum of what these would be charged."""
    return sum(
        amount_micro_usd(usage.num_slots, replace(period, ends_at=ends_at))
        for usage in usages
        for period in book.periods(usage.kind, usage.starts_at, usage.ends_at)
        if (ends_at := min(usage.paid_ends_at, period.ends_at)) > period.starts_at
    )


def unpriced_kinds(usages: tuple[Usage, ...], book: PriceBook) -> set[tuple[str, str]]:
    """The pools and device types without a price for all or part of the time."""
    return {
        (usage.pool, usage.device_type)
        for usage in usages
        for charge in charges(usage, book)
        if charge.period.price_id == UNPRICED
    }
