"""What the cost service knows: history that has ended, and what is held now, written by SQL.

All that has ended did so before this month began, on the nodes that are there now: so nothing of it
is part of a month's report, of the period of a budget, or of what is held.
"""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from services.cost.core.prices import Price, PriceBook
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from tests.conftest import OpenDatabase

TENANT = "vision"
POOLS, NODES = 2, 20
BOOK = PriceBook((Price("cpu-2026", "cpu", datetime(2020, 1, 1, tzinfo=UTC), 3_600_000_000),))
MONTH = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)

# Ten jobs are a study, and five studies a project. `{prefix}`: one of KINDS.
_JOBS = """
insert into jobs (job_id, study_id, project, name, of_tenant, command, succeeded_at)
select {job}, '{prefix}-study-' || n / 10, 'p' || n / 50, 'job ' || n, '{tenant}', n,
    '{begin}' from generate_series(1, {number}) as n;
insert into run_facts (run_id, started_at, ended_at, noted_at)
select '{prefix}-run-' || n, '{begin}', {ended}, '{begin}' from generate_series(1, {number}) as n;
insert into allocations (allocation_id, tenant_id, job_id, run_id, pool, device_type, num_slots,
    slot_numbers, num_spot_slots, spot_slots, granted_at, released_at, release_noted_at,
    paid_ends_at, is_shared)
select '{prefix}-alloc-' || n, '{tenant}', {job}, '{prefix}-run-' || n,
    'pool-' || n % {pools}, 'cpu', 1, 
    jsonb_build_object('node-' || n % {nodes}, array[n / {nodes}]), 0, '{{}}',
    '{begin}', {released}, {released}, {released}, {is_shared}
from generate_series(1, {number}) as n;
"""
_CHARGES = """
insert into charges (charge_id, tenant_id, job_id, run_id, attempt, allocation_id, pool,
    device_type, num_slots, starts_at, ends_at, price_id, price_micro_usd_per_slot_hour,
    amount_micro_usd)
select '{prefix}-charge-' || n, '{tenant}', {job}, '{prefix}-run-' || n, 1,
    '{prefix}-alloc-' || n, 'pool-' || n % {pools}, 'cpu', 1, '{begin}', {released}, 'cpu-2026',
    3600000000, 60000000 from generate_series(1, {number}) as n;
"""
_SHARES = """
insert into job_shares
select timestamptz '{begin}' - n / 5 * interval '1 day', 'pool-' || n % {pools}, 'cpu', '{tenant}',
    {job}, 'productive', 60000000, 60000000 from generate_series(1, {number}) as n;
insert into pool_shares
select day, pool, device_type, tenant_id, kind, sum(slot_microseconds), sum(micro_usd)
from job_shares group by 1, 2, 3, 4, 5;
insert into job_hours
select day::timestamp at time zone 'UTC', pool, device_type, tenant_id, job_id, kind,
    slot_microseconds, micro_usd from job_shares;
insert into pool_hours
select day::timestamp at time zone 'UTC', pool, device_type, tenant_id, kind, slot_microseconds,
    micro_usd from pool_shares where day < '{begin}'::date + 1 on conflict do nothing;
insert into job_spot_shares select * from job_shares;
insert into pool_spot_shares
select '{begin}', 'pool-0', 'cpu', '{tenant}', kind, 1, 1
from unnest(array['productive', 'lost']) as kind;
insert into storage_charges (charge_id, tenant_id, job_id, day, byte_microseconds, price_id,
    micro_usd_per_gb_month, amount_micro_usd, correction)
select '{prefix}-storage-' || n, '{tenant}', {job},
    timestamptz '{begin}' - n / 5 * interval '1 day', 1, 'storage', 1, 1, 0
from generate_series(1, {number}) as n;
"""
_NODES = """
insert into node_offers (node_id, pool, device_type, num_slots, starts_at)
select 'node-' || n, 'pool-' || n % {pools}, 'cpu', {slots}, timestamptz '{begin}'
from generate_series(0, {nodes} - 1) as n;
"""
SLOTS = 10_000
MAX_SECONDS = 200.0
# Their ids are apart from each other's.
KINDS = ("old", "held", "late")


def job(number: int, kind: str = "old") -> str:
    text = str(_first(kind) + number).zfill(26)
    return "job_" + text.translate(str.maketrans("0189", "abcd"))


def _first(kind: str) -> int:
    return KINDS.index(kind) * 10**6


async def world(database: OpenDatabase, num_ended: int, num_held: int, num_lately: int = 0) -> Any:
    """A platform whose service knows so many jobs that ended before this month, that hold a slot
    now, and that ended lately, so that they are not shared out yet."""
    db = await database("cost")
    now = datetime.now(UTC)
    long_ago, lately = MONTH - timedelta(days=2), now - timedelta(minutes=8)
    statement = _NODES.format(pools=POOLS, nodes=NODES, slots=SLOTS, begin=MONTH.isoformat())
    statement += _jobs("old", num_ended, long_ago, has_ended=True)
    statement += _part(_CHARGES + _SHARES, "old", num_ended, long_ago)
    statement += _jobs("held", num_held, now - timedelta(minutes=30), has_ended=False)
    statement += _jobs("late", num_lately, lately, has_ended=True, is_shared=False)
    statement += _part(_CHARGES, "late", num_lately, lately)
    await execute(db, statement + "analyze")
    return SimpleNamespace(database=db, clock=SystemClock())


async def execute(db: Database, statement: str) -> None:
    """Without the service's own limit of time, which is for small statements."""
    async with db.connection() as connection:
        await connection.execute(statement, timeout=MAX_SECONDS)


def _jobs(
    prefix: str, number: int, begin: datetime, *, has_ended: bool, is_shared: bool | None = None
) -> str:
    is_shared = has_ended if is_shared is None else is_shared
    return _part(_JOBS, prefix, number, begin, has_ended=has_ended, is_shared=is_shared)


def _part(
    text: str,
    prefix: str,
    number: int,
    begin: datetime,
    *,
    has_ended: bool = True,
    is_shared: bool = True,
) -> str:
    end = f"timestamptz '{(begin + timedelta(minutes=1)).isoformat()}'" if has_ended else "null"
    return text.format(
        prefix=prefix,
        job=f"'job_' || translate(lpad(({_first(prefix)} + n)::text, 26, '0'), '0189', 'abcd')",
        number=number,
        tenant=TENANT,
        begin=begin.isoformat(),
        released=end,
        ended=end,
        is_shared=str(is_shared).lower(),
        pools=POOLS,
        nodes=NODES,
    )
