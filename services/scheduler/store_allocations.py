"""The scheduler's tables of allocations and their slots: one function per statement.

Times that determine prices or order are taken here, from Postgres, and never run backwards: a slot
is granted no earlier than it was last released.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from services.scheduler.core.model import SHARED, Holding, Slot
from services.scheduler.store_runs import RunRow


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """An allocation with its slots."""

    allocation_id: str
    pool: str
    device_type: str
    slots: tuple[Slot, ...]
    granted_at: datetime
    released_at: datetime | None = None
    spot_nodes: tuple[str, ...] = ()


async def grant_times(
    connection: asyncpg.Connection, grants: Sequence[Sequence[Slot]]
) -> list[datetime]:
    """For the slots of each grant: now, but not before the last release of any of them."""
    slots = [(place, slot) for place, each in enumerate(grants) for slot in each]
    rows = await connection.fetch(
        """select greatest(clock_timestamp(), max(last.released_at)) as granted_at
        from unnest($1::int[], $2::text[], $3::int[]) as wanted (place, node_id, slot)
        left join lateral (
            select released_at from allocation_slots
            where allocation_slots.node_id = wanted.node_id and allocation_slots.slot = wanted.slot
                and released_at is not null
            order by released_at desc limit 1) as last on true
        group by place order by place""",
        [place for place, _ in slots],
        [slot.node_id for _, slot in slots],
        [slot.number for _, slot in slots],
    )
    return [row["granted_at"] for row in rows]


async def insert_allocations(
    connection: asyncpg.Connection, planned: Sequence[tuple[RunRow, AllocationRow]]
) -> None:
    await connection.executemany(
        """insert into allocations (allocation_id, run_id, job_id, pool, device_type, granted_at)
        values ($1, $2, $3, $4, $5, $6)""",
        [
            (
                allocation.allocation_id,
                run.run_id,
                run.job_id,
                allocation.pool,
                allocation.device_type,
                allocation.granted_at,
            )
            for run, allocation in planned
        ],
    )
    await connection.executemany(
        """insert into allocation_slots (allocation_id, node_id, slot, device, is_spot)
        select $1, node_id, $3, case when device_type <> $4 then first_device + $3 end, $5
        from nodes where node_id = $2""",
        [
            (
                allocation.allocation_id,
                slot.node_id,
                slot.number,
                SHARED,
                slot.node_id in allocation.spot_nodes,
            )
            for _, allocation in planned
            for slot in allocation.slots
        ],
    )


async def release(
    connection: asyncpg.Connection, run_ids: Collection[str]
) -> Mapping[str, AllocationRow]:
    """Free the slots of these runs. They must be held: a second release is a bug."""
    rows = await connection.fetch(
        """update allocations set released_at = greatest(granted_at, clock_timestamp())
        where run_id = any($1) and released_at is null returning *""",
        list(run_ids),
    )
    assert len(rows) == len(run_ids), f"not all of {sorted(run_ids)} hold something"
    found = await connection.fetch(
        """update allocation_slots set released_at = released.at
        from unnest($1::text[], $2::timestamptz[]) as released (allocation_id, at)
        where allocation_slots.allocation_id = released.allocation_id
        returning allocation_slots.allocation_id, node_id, slot, is_spot""",
        [row["allocation_id"] for row in rows],
        [row["released_at"] for row in rows],
    )
    slots: dict[str, list[Slot]] = {}
    spot_nodes: dict[str, set[str]] = {}
    for row in found:
        slots.setdefault(row["allocation_id"], []).append(Slot(row["node_id"], row["slot"]))
        if row["is_spot"]:
            spot_nodes.setdefault(row["allocation_id"], set()).add(row["node_id"])
    return {
        row["run_id"]: AllocationRow(
            allocation_id=row["allocation_id"],
            pool=row["pool"],
            device_type=row["device_type"],
            slots=tuple(sorted(slots[row["allocation_id"]])),
            granted_at=row["granted_at"],
            released_at=row["released_at"],
            spot_nodes=tuple(sorted(spot_nodes.get(row["allocation_id"], ()))),
        )
        for row in rows
    }


_HOLDINGS = """
select allocation_id, allocations.job_id, unreachable, memory_bytes,
    array_agg(node_id order by node_id, slot) filter (where node_id is not null) as nodes,
    array_agg(slot order by node_id, slot) filter (where node_id is not null) as numbers,
    array_agg(device order by device) filter (where device is not null) as devices
from allocations join runs using (run_id) join jobs on jobs.job_id = allocations.job_id
    left join allocation_slots using (allocation_id)
where allocations.released_at is null {of_jobs}
group by allocation_id, unreachable, memory_bytes
"""


async def holdings(connection: asyncpg.Connection) -> tuple[Holding, ...]:
    """All open allocations."""
    return _holdings(await connection.fetch(_HOLDINGS.format(of_jobs="")))


async def holdings_of(
    connection: asyncpg.Connection, job_ids: Collection[str]
) -> tuple[Holding, ...]:
    """The open allocations of these jobs."""
    statement = _HOLDINGS.format(of_jobs="and allocations.job_id = any($1)")
    return _holdings(await connection.fetch(statement, list(job_ids)))


def _holdings(rows: Sequence[Any]) -> tuple[Holding, ...]:
    return tuple(
        Holding(
            row["job_id"],
            row["allocation_id"],
            tuple(map(Slot, row["nodes"] or (), row["numbers"] or ())),
            tuple(row["devices"] or ()),
            tuple(row["unreachable"]),
            row["memory_bytes"],
        )
        for row in rows
    )
