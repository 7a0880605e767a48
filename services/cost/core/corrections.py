"""Corrections: charges are never changed; a new row reverses a charge, others replace it.

Usage that no price covered is charged again once the price book has a price for it whose
`valid_from` is early enough. Usage that is still not covered stays `unpriced`.
"""

from drivetrain_schemas.charges import ChargeRecorded
from services.cost.core.charges import Charge, Usage, charges, reversal_id_of
from services.cost.core.prices import UNPRICED, PriceBook


def reprice(charge: ChargeRecorded, correction: int, book: PriceBook) -> tuple[Charge, ...]:
    """The replacement of an unpriced charge at the known prices; empty while there is none."""
    assert charge.price_id == UNPRICED
    usage = Usage(
        allocation_id=charge.allocation_id,
        pool=charge.pool,
        device_type=charge.device_type,
        num_slots=charge.num_slots,
        starts_at=charge.starts_at,
        paid_ends_at=charge.ends_at,
        ends_at=charge.platform_ends_at or charge.ends_at,
        is_spot=charge.is_spot,
    )
    new = charges(usage, book, correction + 1)
    return () if all(item.period.price_id == UNPRICED for item in new) else new


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
    return charge.model_copy(
        update={
            "charge_id": new.charge_id,
            "starts_at": new.period.starts_at,
            "ends_at": new.period.ends_at,
            "price_id": new.period.price_id,
            "price_micro_usd_per_slot_hour": new.period.micro_usd_per_slot_hour,
            "amount_micro_usd": new.amount_micro_usd,
            **platform_fields(new),
        }
    )


def platform_fields(charge: Charge) -> dict[str, object]:
    """The platform's own part of a charge, where there is one."""
    if charge.platform.starts_at == charge.platform.ends_at:
        return {"platform_ends_at": None, "platform_micro_usd": None}
    return {
        "platform_ends_at": charge.platform.ends_at,
        "platform_micro_usd": charge.platform_micro_usd,
    }
