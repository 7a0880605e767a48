"""A charge with sound fields, of which a test names only what it is about."""

from datetime import UTC, datetime, timedelta

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.ids import allocation_id_for, charge_id_for, job_id_for, run_id_for

START = datetime(2026, 2, 1, tzinfo=UTC)
JOB = job_id_for("default", "charged")


def charge(amount_micro_usd: int, tenant_id: str = "default") -> ChargeRecorded:
    return ChargeRecorded(
        charge_id=charge_id_for(allocation_id_for(JOB, 1), str(amount_micro_usd)),
        tenant_id=tenant_id,
        job_id=JOB,
        run_id=run_id_for(JOB, 1),
        attempt=1,
        allocation_id=allocation_id_for(JOB, 1),
        pool="default",
        device_type="cpu",
        num_slots=2,
        starts_at=START,
        ends_at=START + timedelta(seconds=1),
        price_id="cpu-2026",
        price_micro_usd_per_slot_hour=36_000_000,
        amount_micro_usd=amount_micro_usd,
    )
