"""A pass of the service's retention."""

from collections.abc import Awaitable, Callable
from datetime import date
from functools import partial
from typing import Any

from services.cost.core.storage import StoragePrice, StoragePrices
from services.cost.retention import rules
from services.runtime.retention import Retention
from tests.conftest import OpenDatabase
from tests.costs.cost.world import TENANT, execute, world
from tests.costs.counting import Runs, measure
from tests.fakes import ManualClock

RULES = rules(StoragePrices((StoragePrice("storage", date(2020, 1, 1), 1_000_000),)))
# Rows of every table that is pruned: of `age`, so many.
ROWS = """
insert into allocations (allocation_id, tenant_id, job_id, run_id, pool, device_type, num_slots,
    slot_numbers, num_spot_slots, spot_slots, granted_at, released_at, is_shared)
select '{age} ' || n, '{tenant}', 'job', '{age} ' || n, 'pool', 'cpu', 1, '{{}}', 0, '{{}}', at, at,
    true
from {of};
insert into run_facts (run_id, noted_at) select 'alone {age} ' || n, at from {of};
insert into low_use (run_id, alert, starts_at, tenant_id, job_id, used_percent, expected_percent)
select '{age} ' || n, 'low_utilisation', at, '{tenant}', 'job', 10, 75 from {of};
insert into node_offers (node_id, pool, device_type, num_slots, starts_at, ends_at)
select '{age} ' || n, 'pool', 'cpu', 1, at - interval '1 hour', at from {of};
insert into pool_hours select at, 'pool ' || n, 'cpu', '{tenant}', '{age}', 1, 1 from {of};
insert into job_hours select at, 'pool', 'cpu', '{tenant}', '{age} ' || n, 'held', 1, 1 from {of};
insert into stored_checkpoints (checkpoint_id, tenant_id, job_id, size_bytes, stored_at, deleted_at)
select '{age} ' || n, '{tenant}', 'job', 1, at - interval '1 hour', at from {of};
insert into storage_days select generate_series(min(at)::date - 1, max(at)::date, '1 day'), true
from {of} on conflict do nothing;
"""


async def of_what_stays(database: OpenDatabase, size: int) -> Runs:
    platform = await world(database, num_ended=0, num_held=0)
    await execute(platform.database, rows("1 day", size) + "analyze")
    while True:
        await execute(platform.database, rows("4 years", 20))
        yield prune(platform)


async def of_what_goes(database: OpenDatabase, size: int) -> Runs:
    platform = await world(database, num_ended=0, num_held=0)
    await execute(platform.database, rows("1 day", 2500) + "analyze")
    while True:
        await execute(platform.database, rows("4 years", size))
        yield prune(platform)


def prune(platform: Any) -> Callable[[], Awaitable[None]]:
    return partial(Retention(platform.database, "t.", ManualClock(), RULES).prune)


def rows(age: str, number: int) -> str:
    moments = (
        f"(select n, clock_timestamp() - interval '{age}' - n * interval '1 second' as at "
        f"from generate_series(1, {number}) as n) as moments"
    )
    return ROWS.format(age=age, tenant=TENANT, of=moments)


async def test_retention_costs_nothing_for_what_stays(database: OpenDatabase) -> None:
    (await measure(partial(of_what_stays, database), 2500)).assert_flat()


async def test_retention_costs_as_much_as_what_it_deletes(database: OpenDatabase) -> None:
    (await measure(partial(of_what_goes, database), 250)).assert_linear()
