"""Allocations that were released long ago are deleted; open ones and charges stay."""

from datetime import timedelta

from services.cost.core.storage import StoragePrices
from services.cost.retention import rules
from services.runtime.retention import KEEP, Retention
from tests.conftest import OpenDatabase
from tests.fakes import ManualClock

HOUR = timedelta(hours=1)
RULES = rules(StoragePrices())


async def test_old_released_allocations_go_and_open_ones_stay(database: OpenDatabase) -> None:
    rule = next(rule for rule in RULES if rule.table == "allocations")
    assert rule.keep > KEEP  # a grant that is delivered again must find its release
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(
            """insert into allocations (allocation_id, tenant_id, job_id, run_id, pool, device_type,
                num_slots, slot_numbers, num_spot_slots, spot_slots, granted_at, released_at,
                is_shared)
            select name, 'default', 'job', 'run', 'default', 'cpu', 1, '{}', 0, '{}',
                clock_timestamp() - interval '1 year', clock_timestamp() - age, true
            from unnest($1::text[], $2::interval[]) as given (name, age)""",
            ["old", "lately", "open"],
            [rule.keep + HOUR, rule.keep - HOUR, None],
        )
    await Retention(db, "t.", ManualClock(), RULES).prune()
    async with db.connection() as connection:
        left = await connection.fetch("select allocation_id from allocations")
    assert {row["allocation_id"] for row in left} == {"lately", "open"}


async def test_low_use_of_devices_is_known_for_a_year(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(
            """insert into low_use (run_id, alert, starts_at, tenant_id, job_id, used_percent,
                expected_percent)
            select age::text, 'low_utilisation', clock_timestamp() - age, 'default', 'job', 10, 75
            from unnest($1::interval[]) as age""",
            [timedelta(days=365) - HOUR, timedelta(days=365) + HOUR],
        )
    await Retention(db, "t.", ManualClock(), RULES).prune()
    async with db.connection() as connection:
        (left,) = await connection.fetch("select now() - starts_at as age from low_use")
    assert left["age"] < timedelta(days=365)
