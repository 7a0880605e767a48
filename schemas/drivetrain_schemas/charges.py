"""Charges: money for measured slot-time. Append-only; a correction is a reversing row.

A reversing row names the charge that it reverses, for the same slots and time with the negative
amount; the correct amount follows as a separate charge.
"""

from typing import Annotated

from pydantic import Field

from drivetrain_schemas.base import Payload, UtcTime, event
from drivetrain_schemas.ids import AllocationId, ChargeId, JobId, RunId, TenantId
from drivetrain_schemas.topics import EVENTS_CHARGES
from drivetrain_schemas.units import Attempt, MicroUsd


@event("charge.recorded", topic=EVENTS_CHARGES, producer="cost")
class ChargeRecorded(Payload):
    """`num_slots` slots from `starts_at` (in) to `ends_at` (out) at one price, rounded once.

    The same slots, held from `ends_at` to `platform_ends_at` after the last pod had ended, are the
    platform's own cost: `platform_micro_usd` at the same price, which is not charged. Slots on spot
    nodes (`is_spot`) and the other slots of an allocation have charges of their own.
    """

    charge_id: ChargeId
    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    allocation_id: AllocationId
    pool: str
    device_type: str
    num_slots: Annotated[int, Field(ge=1)]
    starts_at: UtcTime
    ends_at: UtcTime
    price_id: str
    price_micro_usd_per_slot_hour: MicroUsd
    amount_micro_usd: MicroUsd
    reverses_charge_id: ChargeId | None = None
    platform_ends_at: UtcTime | None = None
    platform_micro_usd: MicroUsd | None = None
    is_spot: bool = False
