"""The state that the loop decides on, in memory: every job that waits or runs, as in Postgres.

A `State` is a frozen value. `read` makes one from all rows; `refresh` makes the next one from the
jobs that changed, and shares what did not. A round keeps a new one only after its transaction has
committed, so memory never runs ahead of the database; README.md explains why it cannot be out of
date.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import asyncpg

from drivetrain_schemas.jobs import JobState
from services.scheduler import store, store_allocations, store_pods, store_runs
from services.scheduler.core.holds import Hold
from services.scheduler.core.mask import Mask
from services.scheduler.core.model import Holding, Node, QueuedJob
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.queue import Queue
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.projection import LiveRun
from services.scheduler.store import JobRow

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class State:
    """`jobs`: all that wait or run; `live_runs`: the runs among them; both by job id.

    `change` is the highest change number that was read.
    """

    change: int = 0
    jobs: Mapping[str, JobRow] = field(default_factory=dict)
    live_runs: Mapping[str, LiveRun] = field(default_factory=dict)
    snapshot: Snapshot = field(default_factory=Snapshot)


@dataclass(frozen=True, slots=True)
class Found:
    """What was read of some jobs."""

    jobs: Mapping[str, JobRow]
    live_runs: Mapping[str, LiveRun]
    holdings: tuple[Holding, ...]


async def read(connection: asyncpg.Connection) -> State:
    """Everything, from the tables. The caller holds the writer lock."""
    change = await store.last_change(connection)
    jobs = {job.job_id: job for job in await store.live_jobs(connection)}
    found = await _complete(connection, jobs.values())
    held = {each.allocation_id: each for each in await store_allocations.holdings(connection)}
    occupancy = Occupancy(await store.nodes(connection), held)
    return State(
        change, jobs, found.live_runs, Snapshot(occupancy, Queue.of(_queued(jobs.values())))
    )


async def refresh(
    connection: asyncpg.Connection, state: State, touched: Collection[str] = ()
) -> State:
    """The state with what changed since it was read, and with these jobs read again.

    The caller holds the writer lock and names the jobs whose runs, pods or allocations it changed.
    """
    changed = {job.job_id: job for job in await store.jobs_changed(connection, state.change)}
    left = set(touched) - changed.keys()
    if left:
        changed |= {job.job_id: job for job in await store.jobs(connection, left)}
    if not changed:
        return state
    return replaced(state, await _complete(connection, changed.values()))


def replaced(state: State, found: Found) -> State:
    """The state with `found` in place of everything that was known about its jobs."""
    ids = found.jobs.keys()
    unfinished = {job_id: job for job_id, job in found.jobs.items() if is_decided_on(job)}
    known = [state.jobs[job_id] for job_id in ids if job_id in state.jobs]
    return State(
        change=max((state.change, *(job.change for job in found.jobs.values()))),
        jobs=_merged(state.jobs, ids, unfinished),
        live_runs=_merged(state.live_runs, ids, found.live_runs),
        snapshot=replace(
            state.snapshot,
            occupancy=_occupied(state.snapshot.occupancy, ids, found.holdings),
            queue=state.snapshot.queue.changed(_queued(known), _queued(unfinished.values())),
        ),
    )


def is_decided_on(job: JobRow) -> bool:
    """Finished jobs are not, nor paused ones: only a command changes these."""
    return not job.state.is_final and job.state is not JobState.PAUSED


def with_nodes(state: State, nodes: tuple[Node, ...]) -> State:
    """The state with these nodes."""
    occupancy = replace(state.snapshot.occupancy, nodes=nodes)
    return replace(state, snapshot=replace(state.snapshot, occupancy=occupancy))


def with_mask(state: State, mask: Mask | None) -> State:
    """The state with what other pods leave of the nodes now."""
    if mask is state.snapshot.occupancy.mask:
        return state
    occupancy = replace(state.snapshot.occupancy, mask=mask)
    return replace(state, snapshot=replace(state.snapshot, occupancy=occupancy))


def with_holds(state: State, holds: tuple[Hold, ...]) -> State:
    """The state with what budgets hold back now."""
    return replace(state, snapshot=replace(state.snapshot, holds=holds))


async def differences(connection: asyncpg.Connection, state: State) -> tuple[str, ...]:
    """Where the state differs from the tables: ids, for the log.

    A job's change number identifies the version of its row, so only started jobs are read whole.
    """
    changes = await store.live_changes(connection)
    known = {job_id: job.change for job_id, job in state.jobs.items()}
    wrong = {job_id for job_id, _ in known.items() ^ changes.items()}
    started = [job for job in state.jobs.values() if job.state is not JobState.QUEUED]
    live_runs = (await _complete(connection, started)).live_runs
    wrong |= _differing(state.live_runs, live_runs)
    occupancy = state.snapshot.occupancy
    held = {each.allocation_id: each for each in await store_allocations.holdings(connection)}
    wrong |= _differing(occupancy.holdings, held)
    if state.snapshot.queue != Queue.of(_queued(state.jobs.values())):
        wrong.add("the queue")
    if occupancy.nodes != await store.nodes(connection):
        wrong.add("the nodes")
    return tuple(sorted(wrong))


def changed_live_runs(before: State, state: State) -> set[str]:
    """The jobs whose run has changed or is new."""
    return {
        job_id
        for job_id, live in state.live_runs.items()
        if before.live_runs.get(job_id) is not live
    }


def _differing(known: Mapping[str, V], true: Mapping[str, V]) -> set[str]:
    return {key for key in known.keys() | true.keys() if known.get(key) != true.get(key)}


async def _complete(connection: asyncpg.Connection, jobs: Iterable[JobRow]) -> Found:
    """The runs, pods and allocations of these jobs. Only a started job has some."""
    rows = {job.job_id: job for job in jobs}
    started = [
        job_id
        for job_id, job in rows.items()
        if job.state is not JobState.QUEUED and is_decided_on(job)
    ]
    if not started:
        return Found(rows, {}, ())
    runs = await store_runs.live_runs_of(connection, started)
    pods = await store_pods.pods_of(connection, [run.run_id for run in runs])
    live_runs = {
        run.job_id: LiveRun(rows[run.job_id], run, pods.get(run.run_id, ())) for run in runs
    }
    return Found(rows, live_runs, await store_allocations.holdings_of(connection, started))


def _merged(before: Mapping[str, V], ids: Collection[str], after: Mapping[str, V]) -> dict[str, V]:
    """What is known, with the entries of these ids replaced."""
    merged = dict(before)
    for job_id in ids:
        merged.pop(job_id, None)
    merged.update(after)
    return merged


def _occupied(before: Occupancy, ids: Collection[str], holdings: tuple[Holding, ...]) -> Occupancy:
    """The same value where no allocation changed, so that what was computed from it is reused."""
    kept = {key: held for key, held in before.holdings.items() if held.job_id not in ids}
    after = {**kept, **{holding.allocation_id: holding for holding in holdings}}
    return before if after == before.holdings else replace(before, holdings=after)


def _queued(jobs: Iterable[JobRow]) -> list[QueuedJob]:
    return [job.queued for job in jobs if job.state is JobState.QUEUED]
