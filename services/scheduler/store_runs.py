"""The scheduler's tables of runs, allocations, pods and heartbeats: one function per statement.

Times that determine prices or order are taken here, from Postgres, and never run backwards: a slot
is granted no earlier than it was last released.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.jobs import Result
from drivetrain_schemas.pods import PodExit
from drivetrain_schemas.reports import PodHeartbeat
from drivetrain_schemas.runs import RunState
from services.scheduler.core.model import SHARED, Holding, Slot
from services.scheduler.core.pods import EndKind, EndReason, PodState


@dataclass(frozen=True, slots=True)
class RunRow:
    """A live run. `unreachable`: its nodes that were announced not to answer."""

    run_id: str
    job_id: str
    attempt: int
    fence: int
    state: RunState
    master_port: int
    device_type: str
    stop_reason: str | None = None
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod of a run: the intent, and what was recorded of it.

    `devices` are the indices on the pod's machine of the devices that it was granted (none: CPUs).
    """

    pod_id: str
    run_id: str
    index: int
    node_id: str
    first_rank: int
    num_ranks: int
    devices: tuple[int, ...] = ()
    state: PodState = PodState.INTENDED
    launches: int = 0
    was_alive: bool = False
    exit: PodExit | None = None
    reason: EndReason | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RestartTimes:
    """When a job's last run ended, and its next one was granted and started."""

    ended_at: datetime
    granted_at: datetime
    started_at: datetime


@dataclass(frozen=True, slots=True)
class FinishedPod:
    """ENDED or LOST, and how and why it ended where that is known."""

    pod_id: str
    state: PodState
    exit: PodExit | None = None
    reason: EndReason | None = None


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


# -- runs -------------------------------------------------------------------------------------


async def next_fences(connection: asyncpg.Connection, number: int) -> list[int]:
    """Each higher than any before, for this job and every other."""
    rows = await connection.fetch(
        "select nextval('fences') as fence from generate_series(1, $1::int)", number
    )
    return [row["fence"] for row in rows]


async def next_fence(connection: asyncpg.Connection) -> int:
    """Without drawing it, so another run may get it."""
    fence: int = await connection.fetchval("select last_value + is_called::int from fences")
    return fence


async def insert_runs(
    connection: asyncpg.Connection, planned: Sequence[tuple[RunRow, AllocationRow]]
) -> None:
    await connection.executemany(
        """insert into runs
            (run_id, job_id, attempt, fence, state, master_port, device_type, granted_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8)""",
        [
            (
                run.run_id,
                run.job_id,
                run.attempt,
                run.fence,
                str(run.state),
                run.master_port,
                run.device_type,
                allocation.granted_at,
            )
            for run, allocation in planned
        ],
    )


async def live_runs(connection: asyncpg.Connection) -> tuple[RunRow, ...]:
    rows = await connection.fetch("select * from runs where ended_at is null order by run_id")
    return tuple(_run(row) for row in rows)


async def live_runs_of(
    connection: asyncpg.Connection, job_ids: Collection[str]
) -> tuple[RunRow, ...]:
    """The live runs of these jobs, at most one each."""
    rows = await connection.fetch(
        "select * from runs where ended_at is null and job_id = any($1)", list(job_ids)
    )
    return tuple(_run(row) for row in rows)


async def start_runs(
    connection: asyncpg.Connection, states: Mapping[str, RunState]
) -> Mapping[str, datetime]:
    """By run id: when it was started."""
    rows = await connection.fetch(
        """update runs set state = new.state,
            started_at = greatest(granted_at, clock_timestamp())
        from unnest($1::text[], $2::text[]) as new (run_id, state)
        where runs.run_id = new.run_id returning runs.run_id, started_at""",
        list(states),
        [str(state) for state in states.values()],
    )
    return {row["run_id"]: row["started_at"] for row in rows}


async def restart_times(
    connection: asyncpg.Connection, run_ids: Collection[str]
) -> tuple[RestartTimes, ...]:
    """Of those of these started runs that have one before them."""
    rows = await connection.fetch(
        """select last.ended_at, runs.granted_at, runs.started_at from runs
        join runs as last on last.job_id = runs.job_id and last.attempt = runs.attempt - 1
        where runs.run_id = any($1)""",
        list(run_ids),
    )
    return tuple(RestartTimes(**row) for row in rows)


async def set_run_state(connection: asyncpg.Connection, run_id: str, state: RunState) -> None:
    await connection.execute("update runs set state = $2 where run_id = $1", run_id, str(state))


async def set_unreachable(
    connection: asyncpg.Connection, run_id: str, node_ids: Collection[str]
) -> None:
    await connection.execute(
        "update runs set unreachable = $2 where run_id = $1", run_id, list(node_ids)
    )


async def stop_run(
    connection: asyncpg.Connection, run_id: str, state: RunState, reason: str
) -> None:
    """The loop is not the only writer of this, so the job's change number is raised as well."""
    await connection.execute(
        """with stopped as (
            update runs set state = $2, stop_reason = $3 where run_id = $1 returning job_id)
        update jobs set change = nextval('job_changes') from stopped
        where jobs.job_id = stopped.job_id""",
        run_id,
        str(state),
        reason,
    )


async def end_runs(
    connection: asyncpg.Connection, states: Mapping[str, RunState]
) -> Mapping[str, datetime]:
    """By run id: when it ended."""
    rows = await connection.fetch(
        """update runs set state = new.state,
            ended_at = greatest(granted_at, clock_timestamp())
        from unnest($1::text[], $2::text[]) as new (run_id, state)
        where runs.run_id = new.run_id returning runs.run_id, ended_at""",
        list(states),
        [str(state) for state in states.values()],
    )
    return {row["run_id"]: row["ended_at"] for row in rows}


def _run(row: Any) -> RunRow:
    return RunRow(
        run_id=row["run_id"],
        job_id=row["job_id"],
        attempt=row["attempt"],
        fence=row["fence"],
        state=RunState(row["state"]),
        master_port=row["master_port"],
        device_type=row["device_type"],
        stop_reason=row["stop_reason"],
        unreachable=tuple(row["unreachable"]),
    )


# -- allocations ------------------------------------------------------------------------------


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
select allocation_id, allocations.job_id, unreachable,
    array_agg(node_id order by node_id, slot) filter (where node_id is not null) as nodes,
    array_agg(slot order by node_id, slot) filter (where node_id is not null) as numbers,
    array_agg(device order by device) filter (where device is not null) as devices
from allocations join runs using (run_id) left join allocation_slots using (allocation_id)
where allocations.released_at is null {of_jobs} group by allocation_id, unreachable
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
        )
        for row in rows
    )


# -- pods -------------------------------------------------------------------------------------


async def insert_pods(connection: asyncpg.Connection, pods: Sequence[PodRow]) -> None:
    await connection.executemany(
        """insert into pods (pod_id, run_id, index, node_id, first_rank, num_ranks)
        values ($1, $2, $3, $4, $5, $6)""",
        [
            (pod.pod_id, pod.run_id, pod.index, pod.node_id, pod.first_rank, pod.num_ranks)
            for pod in pods
        ],
    )


async def pods_of(
    connection: asyncpg.Connection, run_ids: Collection[str]
) -> Mapping[str, tuple[PodRow, ...]]:
    """The pods of these runs, finished ones among them, by run and in order."""
    rows = await connection.fetch(
        """select pods.*, array(
                select device from allocations join allocation_slots using (allocation_id)
                where allocations.run_id = pods.run_id and node_id = pods.node_id
                    and device is not null
                order by device) as devices
        from pods where run_id = any($1) order by run_id, index""",
        list(run_ids),
    )
    found: dict[str, tuple[PodRow, ...]] = {}
    for row in rows:
        found[row["run_id"]] = (*found.get(row["run_id"], ()), _pod(row))
    return found


async def set_launched(connection: asyncpg.Connection, pod_ids: Collection[str]) -> None:
    await connection.execute(
        """update pods set launches = launches + 1, state = 'launched'
        where pod_id = any($1) and state in ('intended', 'launched')""",
        list(pod_ids),
    )


async def set_alive(connection: asyncpg.Connection, pod_ids: Collection[str]) -> None:
    await connection.execute(
        "update pods set was_alive = true where pod_id = any($1)", list(pod_ids)
    )


async def finish_pods(connection: asyncpg.Connection, pods: Sequence[FinishedPod]) -> None:
    # The transaction's time: pods that finished in one round finished together.
    await connection.execute(
        """update pods set state = ended.state, exit = ended.exit, finished_at = now(),
            end_kind = ended.kind, end_detail = ended.detail
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
            as ended (pod_id, state, exit, kind, detail)
        where pods.pod_id = ended.pod_id and finished_at is null""",
        [pod.pod_id for pod in pods],
        [str(pod.state) for pod in pods],
        [None if pod.exit is None else pod.exit.model_dump_json(exclude_none=True) for pod in pods],
        [None if pod.reason is None else str(pod.reason.kind) for pod in pods],
        [None if pod.reason is None else pod.reason.detail for pod in pods],
    )


async def last_result(connection: asyncpg.Connection, job_id: str) -> Result | None:
    """What the job's last run had reached, where it told so; pod 0 has the result."""
    text = await connection.fetchval(
        """select exit from pods join runs using (run_id)
        where job_id = $1 and index = 0 order by attempt desc limit 1""",
        job_id,
    )
    return None if text is None else PodExit.model_validate_json(text).result


def _pod(row: Any) -> PodRow:
    return PodRow(
        pod_id=row["pod_id"],
        run_id=row["run_id"],
        index=row["index"],
        node_id=row["node_id"],
        first_rank=row["first_rank"],
        num_ranks=row["num_ranks"],
        devices=tuple(row["devices"]),
        state=PodState(row["state"]),
        launches=row["launches"],
        was_alive=row["was_alive"],
        exit=None if row["exit"] is None else PodExit.model_validate_json(row["exit"]),
        reason=_reason(row["end_kind"], row["end_detail"]),
        finished_at=row["finished_at"],
    )


def _reason(kind: str | None, detail: str | None) -> EndReason | None:
    return None if kind is None else EndReason(EndKind(kind), detail or "")


# -- heartbeats -------------------------------------------------------------------------------


async def live_fences(
    connection: asyncpg.Connection, pod_ids: Collection[str]
) -> Mapping[str, tuple[str, int]]:
    """The run and the fence of each of these pods whose run is live."""
    rows = await connection.fetch(
        """select pod_id, run_id, fence from pods join runs using (run_id)
        where ended_at is null and pod_id = any($1)""",
        list(pod_ids),
    )
    return {row["pod_id"]: (row["run_id"], row["fence"]) for row in rows}


async def put_heartbeats(
    connection: asyncpg.Connection, heartbeats: Sequence[PodHeartbeat]
) -> None:
    """Keep the newest heartbeat of each pod, at most one a second.

    In the order of pods, as `delete_heartbeats`, so that the two cannot deadlock.
    """
    await connection.executemany(
        """insert into heartbeats (pod_id, run_id, phase, step) values ($1, $2, $3, $4)
        on conflict (pod_id) do update set phase = excluded.phase, step = excluded.step,
            heard_at = clock_timestamp()
        where heartbeats.heard_at <= clock_timestamp() - interval '1 second'""",
        sorted((beat.pod_id, beat.run_id, beat.phase, beat.step) for beat in heartbeats),
    )


async def delete_heartbeats(connection: asyncpg.Connection, run_ids: Collection[str]) -> None:
    await connection.execute(
        """delete from heartbeats where pod_id in (
            select pod_id from heartbeats where run_id = any($1)
            order by pod_id collate "C" for update)""",
        list(run_ids),
    )


async def last_heartbeat_at(connection: asyncpg.Connection, run_id: str) -> datetime | None:
    moment: datetime | None = await connection.fetchval(
        "select max(heard_at) from heartbeats where run_id = $1", run_id
    )
    return moment
