"""The statements about who had what of a pool, and what runs did with it; no rules."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg

from services.cost.core.charges import Usage, by_capacity
from services.cost.core.phases import RunFacts
from services.cost.core.pools import PoolTime, Row
from services.cost.core.prices import Period
from services.cost.core.steps import FAR_FUTURE, Step, Steps
from services.cost.store import IN_FORCE
from services.cost.store_accrual import HELD_UNTIL, PAID_UNTIL

# Pods say how long saving blocked them: more than this changes nothing, and has no meaning.
_MAX_BLOCKED_SECONDS = timedelta(days=3650).total_seconds()

_HELD = f"""
select allocations.*, started_at, has_lost, last_checkpoint_at, blocked_seconds, project,
    study_id, name as job_name, {HELD_UNTIL} as held_until, {PAID_UNTIL} as paid_until
from allocations left join run_facts using (run_id) left join jobs using (job_id)
where {{condition}}
order by {{order}} limit $2
"""
UNSHARED = _HELD.format(
    condition="allocation_id > $1 and not is_shared"
    " and (released_at is null or released_at > $3) and granted_at < $4",
    order="allocation_id",
)


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the shares of steps of this length are; `{}` of `key` is a moment. `spot_pools` and
    `spot_jobs`: the part that was of spot slots, kept by day only."""

    pools: str
    jobs: str
    column: str
    key: str
    begin: str
    spot_pools: str | None = None
    spot_jobs: str | None = None


TABLES = {
    Step.DAY: Tables(
        "pool_shares",
        "job_shares",
        column="day",
        key="({} at time zone 'UTC')::date",
        begin="day::timestamp at time zone 'UTC'",
        spot_pools="pool_spot_shares",
        spot_jobs="job_spot_shares",
    ),
    Step.HOUR: Tables("pool_hours", "job_hours", column="hour", key="{}", begin="hour"),
}
_OF_POOL = "pool, device_type, tenant_id, kind"
_OF_JOB = "pool, device_type, tenant_id, job_id, kind"
_CHARGES = f"""
select * from charges where allocation_id = any($1) and {IN_FORCE} order by starts_at
"""
_ADD = """
insert into {table} as known ({column}, {of}, slot_microseconds, micro_usd)
    select {key}, {of}, sum(slot_time), sum(amount)
    from unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
        $7::numeric[], $8::numeric[])
        as share (starts_at, pool, device_type, tenant_id, job_id, kind, slot_time, amount)
    group by 1, {of} order by 1, {of}
on conflict ({column}, {of}) do update set
    slot_microseconds = known.slot_microseconds + excluded.slot_microseconds,
    micro_usd = known.micro_usd + excluded.micro_usd
"""


@dataclass(frozen=True, slots=True)
class HeldUsage:
    """An allocation's slots of one capacity, with what is known of its run. `periods`: of their
    charges, where there are any; `slot_numbers`: which slots of which node are held. `is_shared`:
    they were added to the days and hours."""

    allocation_id: str
    tenant_id: str
    job_id: str
    usage: Usage
    run: RunFacts
    periods: tuple[Period, ...]
    slot_numbers: Mapping[str, Sequence[int]]
    is_shared: bool = True
    project: str = ""
    study_id: str = ""
    job_name: str = ""


async def note_started(connection: asyncpg.Connection, run_id: str, started_at: datetime) -> None:
    await connection.execute(
        """
        insert into run_facts (run_id, started_at) values ($1, $2)
        on conflict (run_id) do update set started_at = excluded.started_at
        """,
        run_id,
        started_at,
    )


async def note_ended(
    connection: asyncpg.Connection, run_id: str, ended_at: datetime, has_lost: bool
) -> None:
    """`has_lost`: what it had not saved must be done again."""
    await connection.execute(
        """
        insert into run_facts (run_id, has_lost, ended_at) values ($1, $2, $3)
        on conflict (run_id) do update set
            has_lost = excluded.has_lost, ended_at = excluded.ended_at
        """,
        run_id,
        has_lost,
        ended_at,
    )


async def note_checkpoint(
    connection: asyncpg.Connection, run_id: str, at: datetime, blocked_seconds: float
) -> None:
    await connection.execute(
        """
        insert into run_facts (run_id, last_checkpoint_at, blocked_seconds) values ($1, $2, $3)
        on conflict (run_id) do update set
            last_checkpoint_at =
                greatest(run_facts.last_checkpoint_at, excluded.last_checkpoint_at),
            blocked_seconds = run_facts.blocked_seconds + excluded.blocked_seconds
        """,
        run_id,
        at,
        min(blocked_seconds, _MAX_BLOCKED_SECONDS),
    )


async def to_share(
    connection: asyncpg.Connection, age: timedelta, limit: int
) -> Sequence[HeldUsage]:
    """Known to be released for longer than `age` and not shared out, locked."""
    statement = _HELD.format(
        condition="not is_shared and released_at < statement_timestamp() - $1::interval"
        " and coalesce(release_noted_at, released_at) < statement_timestamp() - $1::interval",
        order="released_at, allocation_id",
    )
    rows = await connection.fetch(statement + " for update of allocations", age, limit)
    return await _held(connection, rows, None)


async def unshared(
    connection: asyncpg.Connection, after: str, limit: int, steps: Steps, now: datetime
) -> Sequence[HeldUsage]:
    """What was held in these steps and is not shared out, by id."""
    rows = await connection.fetch(UNSHARED, after, limit, steps.starts_at, steps.ends_at)
    return await _held(connection, rows, now)


async def lock(
    connection: asyncpg.Connection, allocation_id: str, is_spot: bool
) -> HeldUsage | None:
    """The allocation's slots of this capacity, so that nobody shares them out meanwhile; None where
    they were deleted by age."""
    statement = _HELD.format(condition="allocation_id = $1", order="allocation_id")
    rows = await connection.fetch(statement + " for update of allocations", allocation_id, 1)
    held = await _held(connection, rows, None)
    return next((each for each in held if each.usage.is_spot == is_spot), None)


async def add_shares(connection: asyncpg.Connection, rows: Sequence[Row], step: Step) -> None:
    """Add them to the days, or hours, of pools and jobs."""
    tables = TABLES[step]
    await _add(connection, rows, tables, (tables.pools, tables.jobs))
    if tables.spot_pools and tables.spot_jobs:
        of_spot = [row for row in rows if row.is_spot]
        await _add(connection, of_spot, tables, (tables.spot_pools, tables.spot_jobs))


async def _add(
    connection: asyncpg.Connection, rows: Sequence[Row], tables: Tables, names: tuple[str, str]
) -> None:
    """To these two tables, of pools and of jobs."""
    if not rows:
        return
    columns = [
        [row.of.starts_at for row in rows],
        [row.of.pool for row in rows],
        [row.of.device_type for row in rows],
        [row.tenant_id for row in rows],
        [row.job_id for row in rows],
        [row.kind for row in rows],
        [row.slot_microseconds for row in rows],
        [row.micro_usd for row in rows],
    ]
    key = tables.key.format("starts_at")
    for table, of in zip(names, (_OF_POOL, _OF_JOB), strict=True):
        statement = _ADD.format(table=table, column=tables.column, key=key, of=of)
        await connection.execute(statement, *columns)


async def mark_shared(connection: asyncpg.Connection, allocation_ids: Collection[str]) -> None:
    await connection.execute(
        "update allocations set is_shared = true where allocation_id = any($1)",
        list(allocation_ids),
    )


async def shares(
    connection: asyncpg.Connection,
    first: date,
    last: date,
    kind: str | None = None,
    is_spot: bool = False,
) -> Sequence[Row]:
    """Of these days: of every kind, or of one; `is_spot`: their part that was of spot slots."""
    tables = TABLES[Step.DAY]
    rows = await connection.fetch(
        f"""
        select * from {tables.spot_pools if is_spot else tables.pools}
        where day between $1 and $2 and ($3::text is null or kind = $3)
        """,
        first,
        last,
        kind,
    )
    return [
        Row(
            PoolTime.of_day(row["day"], row["pool"], row["device_type"]),
            row["kind"],
            row["tenant_id"],
            int(row["slot_microseconds"]),
            int(row["micro_usd"]),
            is_spot=is_spot,
        )
        for row in rows
    ]


async def _held(
    connection: asyncpg.Connection, rows: Sequence[Any], now: datetime | None
) -> Sequence[HeldUsage]:
    """What is not released is held and paid up to `now`, or to where it is known to be over."""
    released = [row["allocation_id"] for row in rows if row["released_at"] is not None]
    periods: dict[tuple[str, bool], list[Period]] = defaultdict(list)
    for row in await connection.fetch(_CHARGES, released):
        periods[row["allocation_id"], row["is_spot"]].append(
            Period(
                row["starts_at"],
                row["platform_ends_at"] or row["ends_at"],
                row["price_id"],
                row["price_micro_usd_per_slot_hour"],
            )
        )
    found = []
    for row in rows:
        paid_ends_at, ends_at = _ends(row, now)
        whole = Usage(
            allocation_id=row["allocation_id"],
            pool=row["pool"],
            device_type=row["device_type"],
            num_slots=row["num_slots"],
            starts_at=row["granted_at"],
            paid_ends_at=paid_ends_at,
            ends_at=ends_at,
        )
        spot: dict[str, int] = row["spot_slots"]
        of_nodes: dict[str, list[int]] = row["slot_numbers"]
        for usage in by_capacity(whole, row["num_spot_slots"]):
            found.append(
                HeldUsage(
                    row["allocation_id"],
                    row["tenant_id"],
                    row["job_id"],
                    usage,
                    _facts(row),
                    tuple(periods[row["allocation_id"], usage.is_spot]),
                    {
                        node: numbers
                        for node, numbers in of_nodes.items()
                        if (node in spot) is usage.is_spot
                    },
                    row["is_shared"],
                    row["project"] or "",
                    row["study_id"] or "",
                    row["job_name"] or "",
                )
            )
    return found


def _ends(row: Any, now: datetime | None) -> tuple[datetime, datetime]:
    """Until when it is paid, and held."""
    if row["released_at"] is not None:
        return row["paid_ends_at"], row["released_at"]
    begin = row["granted_at"]
    end = min(now or begin, row["held_until"] or FAR_FUTURE)
    return max(begin, min(end, row["paid_until"] or FAR_FUTURE)), max(begin, end)


def _facts(row: Any) -> RunFacts:
    """What is saved is not lost; without a checkpoint all since the start is."""
    kept = (row["last_checkpoint_at"] or row["started_at"]) if row["has_lost"] else None
    blocked = timedelta(seconds=min(row["blocked_seconds"] or 0.0, _MAX_BLOCKED_SECONDS))
    return RunFacts(row["started_at"], kept, blocked)
