"""Spend is added up by day as `days.by_day` does it, to the micro-dollar."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from services.cost.core.prices import Period
from tests.conftest import OpenDatabase
from tests.handlers.cost.days import by_day

CHARGES = """
insert into charges (charge_id, tenant_id, job_id, run_id, attempt, allocation_id, pool,
    device_type, num_slots, starts_at, ends_at, price_id, price_micro_usd_per_slot_hour,
    amount_micro_usd, reverses_charge_id)
select 'charge_' || n, 'default', 'job_' || n % 3, 'run_' || n, 1, 'alloc_' || n, 'default', 'cpu',
    1 + n % 7, starts_at, ends_at, 'cpu', price, 0, case when n % 10 = 0 then 'charge_1' end
from generate_series(1, 200) as n, lateral (
    select timestamptz '2026-01-01' + n * interval '7 hours 13 minutes 0.123457 seconds',
        timestamptz '2026-01-01' + n * interval '9 hours 1 minute 7.654321 seconds',
        case when n % 2 = 0 then 1800 else 2500001 end) as at (starts_at, ends_at, price)
where n % 10 <> 0 or n = 10;
"""


def days_of(charge: Any) -> list[tuple[date, int]]:
    period = Period(charge.starts_at, charge.ends_at, "", charge.price_micro_usd_per_slot_hour)
    sign = -1 if charge.reverses_charge_id else 1
    return [(day, sign * amount) for day, amount in by_day(charge.num_slots, period)]


async def test_charges_are_cut_at_midnights_for_each_subject(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.transaction() as tx:
        await tx.connection.execute(
            "insert into jobs (job_id, study_id) values ('job_1', 'study_1')"
        )
        await tx.connection.execute(CHARGES)
        rows = await tx.connection.fetch("select * from charges")
        expected: Counter[tuple[str, object]] = Counter()
        for row in rows:
            charge: Any = SimpleNamespace(**row)
            for day, amount in days_of(charge):
                subjects = ["", charge.job_id, *(["study_1"] if charge.job_id == "job_1" else [])]
                for subject in subjects:
                    expected[subject, day] += amount
        found = await tx.connection.fetch("select * from spend where isfinite(day)")
    assert {(row["subject"], row["day"]): row["charged_micro_usd"] for row in found} == expected
    assert len({day for _, day in expected}) > 60


async def test_half_a_micro_dollar_is_rounded_to_even(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.transaction() as tx:
        for product, rounded in ((1, 0), (3, 2), (5, 2), (7, 4)):
            half = product * 1_800_000_000
            assert await tx.connection.fetchval("select cost_of($1, 1)", half) == rounded
        assert await tx.connection.fetchval("select cost_of(1800000001, 1)") == 1
        first = datetime(2026, 1, 1, tzinfo=UTC)
        last = first + timedelta(microseconds=7)
        assert await tx.connection.fetchval("select slot_time(3, $1, $2)", first, last) == 21
