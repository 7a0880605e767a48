"""Charges. A charge never changes; what they add up to is in `counters`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from services.gateway.core.noun import Noun, as_it_is, by


@dataclass(frozen=True, slots=True)
class Charge:
    charge_id: str
    tenant_id: str
    job_id: str
    ends_at: datetime
    amount_micro_usd: int


def _new(event: Event[Any]) -> Charge:
    charge = event.payload
    return Charge(
        charge_id=charge.charge_id,
        tenant_id=charge.tenant_id,
        job_id=charge.job_id,
        ends_at=charge.ends_at,
        amount_micro_usd=charge.amount_micro_usd,
    )


CHARGES = Noun(
    table="charges",
    view=Charge,
    key=("charge_id",),
    key_of=by("charge_id"),
    new=_new,
    rules={ChargeRecorded: as_it_is},
)
