"""Reading a tenant's spend costs days and open allocations, not all charges that ever were."""

import json
from typing import Any

import asyncpg

from services.cost import store
from tests.conftest import OpenDatabase

FILL = """
insert into charges (charge_id, tenant_id, job_id, run_id, attempt, allocation_id, pool,
    device_type, num_slots, starts_at, ends_at, price_id, price_micro_usd_per_slot_hour,
    amount_micro_usd)
select 'charge_' || n, 'default', 'job_' || n / 4, 'run_' || n, 1, 'alloc_' || n, 'default', 'cpu',
    1, moment, moment + interval '1 minute', 'cpu-2026', 48000, 800
from generate_series(1, 100000) as n,
    lateral (select timestamptz '2026-01-01' + n * interval '5 minutes' as moment) as at;
insert into allocations (allocation_id, tenant_id, job_id, run_id, pool, device_type, num_slots,
    slot_numbers, num_spot_slots, spot_slots, granted_at, released_at)
select 'alloc_' || n, 'default', 'job_' || n / 4, 'run_' || n, 'default', 'cpu', 1, '{}', 0, '{}',
    now(), case when n > 20 then now() end
from generate_series(1, 100000) as n;
analyze charges; analyze allocations; analyze spend_by_day; analyze unpriced_use;
"""
FILL_RUNS = "insert into run_facts (run_id) select run_id from allocations; analyze run_facts"


def relations(plan: dict[str, Any]) -> dict[str, float]:
    """The tables that a plan reads, and how many rows of each it met."""
    found: dict[str, float] = {}
    if "Relation Name" in plan:
        removed = plan.get("Rows Removed by Filter", 0)
        found[plan["Relation Name"]] = plan["Actual Rows"] + removed
    for part in plan.get("Plans", ()):
        found |= relations(part)
    return found


async def rows_read(
    connection: asyncpg.Connection, statement: str, *values: object
) -> dict[str, float]:
    text = await connection.fetchval(f"explain (analyze, format json) {statement}", *values)
    return relations(json.loads(text)[0]["Plan"])


async def test_no_read_costs_all_history(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(FILL)
        await connection.execute(FILL_RUNS)
        tenant, job = "default", "job_77"

        assert await rows_read(connection, store.CHARGED_TO_TENANT, tenant) == {"spend_by_day": 0}
        assert await rows_read(connection, store.UNPRICED_OF_TENANT, tenant) == {"unpriced_use": 0}
        assert await rows_read(connection, store.OPEN_OF_TENANT, tenant) == {
            "allocations": 20,
            "run_facts": 1,  # for each
        }
        assert await rows_read(connection, store.HELD_SLOTS) == {"allocations": 20, "run_facts": 1}
        assert await rows_read(connection, store.CHARGED_TO_JOB, job) == {"charges": 4}
        assert await rows_read(connection, store.UNPRICED_OF_JOB, job) == {"charges": 4}
        assert await rows_read(connection, store.OPEN_OF_JOB, "job_2") == {
            "allocations": 4,
            "run_facts": 1,
        }
        (read,) = (await rows_read(connection, store.UNPRICED_CHARGES, "", 100)).values()
        assert read == 0
