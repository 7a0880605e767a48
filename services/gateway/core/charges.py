"""Charges. A charge never changes; what they add up to is in `counters`."""

from dataclasses import dataclass
from datetime import datetime

from drivetrain_schemas.charges import ChargeRecorded
from services.gateway.core.noun import Noun, as_it_is


@dataclass(frozen=True, slots=True)
class Charge:
    charge_id: str
    tenant_id: str
    job_id: str
    ends_at: datetime
    amount_micro_usd: int


CHARGES = Noun(table="charges", view=Charge, key=("charge_id",), rules={ChargeRecorded: as_it_is})
