"""What a charge costs on each day (UTC): whole micro-dollars that add up to the charge exactly."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from services.cost.core.charges import amount_micro_usd
from services.cost.core.prices import Period


def by_day(num_slots: int, period: Period) -> Iterator[tuple[date, int]]:
    """The amount of a charge for `num_slots` during `period`, by day.

    Each day gets the difference of what is due at its end and what was due at its begin, each
    rounded once: so the parts add up to the charge.
    """
    due = 0
    for day_ends_at in _day_ends(period.starts_at, period.ends_at):
        until = Period(
            period.starts_at, day_ends_at, period.price_id, period.micro_usd_per_slot_hour
        )
        total = amount_micro_usd(num_slots, until)
        yield (day_ends_at - timedelta(microseconds=1)).astimezone(UTC).date(), total - due
        due = total


def _day_ends(starts_at: datetime, ends_at: datetime) -> Iterator[datetime]:
    midnight = starts_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while starts_at < ends_at:
        midnight += timedelta(days=1)
        yield min(midnight, ends_at)
        starts_at = midnight
