"""Corrections: charges are never changed; a new row reverses a charge, others replace it.

Usage that no price covered is charged again once the price book has a price for it whose
`valid_from` is early enough. Usage that is still not covered stays `unpriced`.
"""

from typing import Any

from drivetrain_schemas.charges import ChargeRecorded
from services.cost.core.charges import Charge, Usage, charges, reversal_id_of
from services.cost.core.prices import UNPRICED, PriceBook


def reprice(charge: ChargeRecorded, correction: int, book: PriceBook) -> tuple[Charge, ...]:
    """The replacement of an unpriced charge at the known prices; empty while there is none."""
    assert charge.price_id == UNPRICED
    new = charges(usage_of(charge), book, correction + 1)
    return () if all(item.period.price_id == UNPRICED for item in new) else new


def usage_of(charge: ChargeRecorded) -> Usage:
    return Usage(
        charge.allocation_id,
        charge.pool,
        charge.device_type,
        charge.num_slots,
        charge.starts_at,
        charge.ends_at,
        charge.platform_ends_at or charge.ends_at,
        charge.is_spot,
    )


def reversal(charge: ChargeRecorded) -> ChargeRecorded:
    """The row that reverses `charge`: the same slots and time, the negative amounts."""
    platform = charge.platform_micro_usd
    return charge.model_copy(
        update={
            "charge_id": reversal_id_of(charge.charge_id),
            "amount_micro_usd": -charge.amount_micro_usd,
            "platform_micro_usd": None if platform is None else -platform,
            "reverses_charge_id": charge.charge_id,
        }
    )


def replacement(charge: ChargeRecorded, new: Charge) -> ChargeRecorded:
    """`new` in place of `charge`: the same allocation, at another price."""
    return charge.model_copy(update=fields_of(new))


def fields_of(charge: Charge) -> dict[str, Any]:
    """What a charge says of time and money; of the platform's own part, where there is one."""
    has_platform = charge.platform.starts_at < charge.platform.ends_at
    return {
        "charge_id": charge.charge_id,
        "num_slots": charge.num_slots,
        "starts_at": charge.period.starts_at,
        "ends_at": charge.period.ends_at,
        "price_id": charge.period.price_id,
        "price_micro_usd_per_slot_hour": charge.period.micro_usd_per_slot_hour,
        "amount_micro_usd": charge.amount_micro_usd,
        "is_spot": charge.is_spot,
        "platform_ends_at": charge.platform.ends_at if has_platform else None,
        "platform_micro_usd": charge.platform_micro_usd if has_platform else None,
    }
