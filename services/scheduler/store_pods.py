"""The scheduler's tables of pods and their heartbeats: one function per statement."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from drivetrain_schemas.jobs import Result
from drivetrain_schemas.pods import PodExit
from drivetrain_schemas.reports import PodHeartbeat
from services.scheduler.core.pods import EndKind, EndReason, PodState


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
class FinishedPod:
    """ENDED or LOST, and how and why it ended where that is known."""

    pod_id: str
    state: PodState
    exit: PodExit | None = None
    reason: EndReason | None = None


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
    found: dict[str, list[PodRow]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(_pod(row))
    return {run_id: tuple(pods) for run_id, pods in found.items()}


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
        where heartbeats.heard_at <= statement_timestamp() - interval '1 second'""",
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
