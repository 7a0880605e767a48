"""The reconcile loop: compares what is recorded with what is observed, and acts on it.

One round: look at the pods of live runs -> let the launcher act (launch, stop notice, kill) -> one
transaction under the writer lock that records what is proven, ends what has finished, and grants
what is free. After a crash, the next round continues from the recorded state. Handlers only wake
it; while runs live it polls. What it decides on is kept in memory (`state`), brought up to date at
the start of each transaction and compared with the tables every `resync_seconds`. There is one
replica; a session lock prevents decisions by a predecessor that is still stopping.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from drivetrain_schemas.jobs import JobSpec, WaitingReason
from drivetrain_schemas.runs import RunState
from services.runtime import logs
from services.runtime.errors import TemporaryError, is_temporary, unavailable_part
from services.runtime.service import Platform
from services.runtime.transaction import Tx
from services.scheduler import (
    endings,
    holds,
    instruments,
    store,
    store_pods,
    store_sightings,
    transitions,
)
from services.scheduler.core.cycle import Decision, decide
from services.scheduler.core.invariants import check
from services.scheduler.core.model import Node
from services.scheduler.core.outcome import conclude
from services.scheduler.core.pods import PodState, Sight
from services.scheduler.core.reasons import holders
from services.scheduler.core.reconcile import Moves, moves
from services.scheduler.fleet import Fleet, register
from services.scheduler.leases import Leases
from services.scheduler.measures import Measures
from services.scheduler.pods import Acted, Pods
from services.scheduler.ports import Ports
from services.scheduler.projection import LiveRun, is_alive, unreachable_nodes
from services.scheduler.settings import SchedulerSettings
from services.scheduler.state import (
    State,
    changed_live_runs,
    differences,
    read,
    refresh,
    with_holds,
    with_mask,
    with_nodes,
)
from services.scheduler.store_pods import FinishedPod

log = logs.get()

STANDBY_SECONDS = 1.0
AWAY_SECONDS = 1.0  # until an unavailable launcher is asked again
MAX_ANNOUNCED = 200  # in one round
# Only jobs that are not blocked wait for the holders of slots themselves.
WAITS_FOR_HOLDERS = (WaitingReason.NO_FREE_DEVICES, WaitingReason.GANG_INCOMPLETE)


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of observing the live runs: those that may need an action, the runs whose lease
    lapsed or whose heartbeats resumed, and what the launcher did."""

    to_check: Sequence[LiveRun]
    lease_news: Collection[str]
    acted: Acted

    def job_ids(self) -> set[str]:
        return {live.job.job_id for live in self.to_check}


class Loop:
    """The one writer of runs and allocations. `wake` and `look` may be called from anywhere in the
    process.

    `state` is what was last read and committed; None before the first round, and after a failed
    transaction, because it is then unknown whether it committed. `registered` is set once nodes are
    in the database.
    """

    def __init__(
        self, settings: SchedulerSettings, pods: Pods, leases: Leases, fleet: Fleet
    ) -> None:
        self.state: State | None = None
        # What readers get: as `state`, but also while a transaction is open.
        self.shown: tuple[State, Decision] | None = None
        self.registered = asyncio.Event()
        self._settings = settings
        self._pods = pods
        self._leases = leases
        self._ports = Ports(pods.launcher)
        self._fleet = fleet
        self._measures = Measures()
        self._stored_nodes: Sequence[Node] | None = None
        self._woken = asyncio.Event()
        self._is_due = False
        self._next_due = 0.0
        self._next_resync = 0.0

    def wake(self) -> None:
        """Something was committed: decide again."""
        self._is_due = True
        self._woken.set()

    def look(self) -> None:
        """A pod may have ended: look at the pods without waiting for the next poll."""
        self._woken.set()

    async def run(self, platform: Platform) -> None:
        """A task of the service. Temporary failures are retried."""
        while not platform.stopping.is_set():
            try:
                await self._lead(platform)
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning(
                    "scheduler cannot proceed, trying again",
                    part=unavailable_part(error),
                    error=repr(error),
                )
                await platform.clock.sleep(STANDBY_SECONDS)

    async def _lead(self, platform: Platform) -> None:
        connection = await platform.database.dedicated_connection()
        try:
            while not await store.try_lead(connection):
                await platform.clock.sleep(STANDBY_SECONDS)
            log.info("scheduler has become the leader")
            # Another process may have been the leader: everything is read again before any action.
            self.state = None
            self._next_due = 0.0
            self._stored_nodes = None
            await self._fleet.look()
            while not platform.stopping.is_set():
                if connection.is_closed():
                    raise TemporaryError("the leader's connection, and with it the lock, is lost")
                with instruments.ROUND_SECONDS.time():
                    is_moving = await self.round(platform)
                if not is_moving:
                    await self._wait(platform)
        finally:
            self.shown = None
            await connection.close(timeout=1.0)

    async def _wait(self, platform: Platform) -> None:
        left = max(0.0, self._next_due - platform.clock.monotonic())
        timeout = min(left, self._settings.poll_seconds) if self._live_runs() else left
        if self._pods.is_away:
            timeout = AWAY_SECONDS
        try:
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        except TimeoutError:
            return

    async def round(self, platform: Platform) -> bool:
        """True when something changed, so that the next round should follow immediately."""
        is_due = self._is_due or platform.clock.monotonic() >= self._next_due
        self._is_due = False
        self._woken.clear()
        live_runs = self._live_runs()
        if self.state is not None and not live_runs:
            await self._pods.say_that_none_live()
        has_changed = await self._pods.look(live_runs)
        if self._pods.is_away:
            self._is_due = is_due
            await self._tell_waits(platform)
            return False
        news = self._leases.news(live.run for live in live_runs)
        # Most runs just run and need no action.
        to_check = [
            live for live in live_runs if live.run.run_id in news or not self._pods.is_settled(live)
        ]

        async def read_specs(job_ids: Sequence[str]) -> dict[str, JobSpec]:
            async with platform.database.connection() as connection:
                return await store.specs(connection, job_ids)

        acted = await self._pods.act(to_check, read_specs)
        is_told = not any(self._pods.has_new_wait(live) for live in to_check)
        if is_told and not (is_due or has_changed or acted or news):
            return False
        has_moved = await self._apply(platform, Seen(to_check, news, acted))
        return has_moved or bool(acted)

    async def _tell_waits(self, platform: Platform) -> None:
        """That the launcher is unavailable, on runs that are to start. Nothing else is decided."""
        if self.state is None or not any(map(self._pods.has_new_wait, self._live_runs())):
            return
        before, self.state = self.state, None
        async with platform.database.transaction() as tx:
            await store.lock(tx.connection)
            state = await refresh(tx.connection, before)
            waits = [live for live in state.live_runs.values() if self._pods.has_new_wait(live)]
            for live in waits:
                await transitions.note_waiting(tx, live, self._pods.new_wait(live))
            state = await refresh(tx.connection, state, {live.job.job_id for live in waits})
        self.state = state

    def _live_runs(self) -> Sequence[LiveRun]:
        return () if self.state is None else tuple(self.state.live_runs.values())

    async def _apply(self, platform: Platform, seen: Seen) -> bool:
        """The round's transaction. True when something changed."""
        await self._ports.look(platform, self._held_ports(self.state))
        before, self.state = self.state, None
        async with platform.database.transaction() as tx:
            connection = tx.connection
            await store.lock(connection)
            state = await self._load(platform, connection, before)
            nodes = self._fleet.wanted
            if nodes is not None and nodes is not self._stored_nodes:
                await register(tx, nodes, self._fleet.gone)
                state = with_nodes(state, await store.nodes(connection))
            state = with_mask(state, self._fleet.mask)
            state = with_holds(state, await holds.read(connection))
            ids = seen.job_ids() | (
                changed_live_runs(before, state) if before else state.live_runs.keys()
            )
            state = await refresh(connection, state, await self._record(tx, state, ids, seen))
            state = await refresh(connection, state, await self._move(tx, state, ids, seen))
            # After the moves, so that jobs requeued without a delay start in this round.
            now = await store.now(connection)
            decision = decide(state.snapshot, now)
            await self._grant(tx, state, decision)
            has_more = await self._announce(tx, state, decision)
            state = await refresh(connection, state)
        self.state = state  # committed, so this is valid
        self.shown = (state, decision)
        self._stored_nodes = nodes
        if nodes is not None or state.snapshot.occupancy.nodes:
            self.registered.set()
        live_runs = self._live_runs()
        self._leases.watch_runs({live.run.run_id for live in live_runs if _is_started(live)})
        self._set_next_due(platform, state, now)
        self._measures.report(state, decision)
        if has_more or decision.is_cut:
            self._next_due = 0.0  # immediately, whatever else happens
        return has_more or decision.is_cut or before is None or state.live_runs != before.live_runs

    async def _load(
        self, platform: Platform, connection: asyncpg.Connection, before: State | None
    ) -> State:
        """The current state: read from all rows after a failure, compared with them at a resync."""
        state = await read(connection) if before is None else await refresh(connection, before)
        if before is not None and platform.clock.monotonic() < self._next_resync:
            return state
        self._next_resync = platform.clock.monotonic() + self._settings.resync_seconds
        if before is not None and (wrong := await differences(connection, state)):
            instruments.STATE_DIFFERENCES.inc(len(wrong))
            log.error("state in memory was wrong and was read again", differs=wrong[:20])
            state = await read(connection)
        for broken in check(state.snapshot):
            instruments.BROKEN_INVARIANTS.inc()
            log.error("invariant broken", invariant=broken)
        return state

    async def _record(self, tx: Tx, state: State, ids: Collection[str], seen: Seen) -> set[str]:
        """Record on the pods' rows what the launcher did and observed. Returns the jobs changed."""
        acted = seen.acted
        touched: set[str] = set()
        alive: list[str] = []
        finished: list[FinishedPod] = []
        for live in (state.live_runs[job_id] for job_id in ids if job_id in state.live_runs):
            for pod in (pod for pod in live.pods if pod.finished_at is None):
                look = self._pods.observations.get(pod.pod_id)
                is_new = look is not None and is_alive(look) and not pod.was_alive
                if is_new:
                    alive.append(pod.pod_id)
                reason = acted.refused.get(pod.pod_id) or (look.reason if look else None)
                if look is not None and look.sight is Sight.ENDED:
                    finished.append(FinishedPod(pod.pod_id, PodState.ENDED, look.exit, reason))
                elif pod.pod_id in acted.gone:
                    finished.append(FinishedPod(pod.pod_id, PodState.LOST, reason=reason))
                elif not is_new and pod.pod_id not in acted.launched:
                    continue
                touched.add(live.job.job_id)
        if acted.launched:
            await store_pods.set_launched(tx.connection, acted.launched)
        if finished:
            await store_pods.finish_pods(tx.connection, finished)
        if alive:
            await store_pods.set_alive(tx.connection, alive)
        return touched

    async def _move(self, tx: Tx, state: State, ids: Collection[str], seen: Seen) -> set[str]:
        """Apply the proven changes of runs. Returns the jobs changed."""
        live_runs = [state.live_runs[job_id] for job_id in ids if job_id in state.live_runs]
        proven = [(live, moves(self._pods.view(live))) for live in live_runs]
        ages: dict[str, float] = {}
        for live in (live for live, each in proven if each.is_finished):
            ages |= self._pods.seconds_since_alive(live)
        if ages:
            await store_sightings.put(tx.connection, ages)
        started = await transitions.start(tx, [live for live, each in proven if each.is_started])
        touched = {live.job.job_id for live in started.values()}
        ended: list[endings.Ending] = []
        for live, each in proven:
            now = started.get(live.run.run_id, live)
            if each.is_finished:
                ended.append(self._ending(now))
                touched.add(live.job.job_id)
                continue
            has_lease_news = live.run.run_id in seen.lease_news
            is_moved = await self._move_one(tx, now, each, has_lease_news)
            if not is_moved and self._pods.has_new_wait(now):
                await transitions.note_waiting(tx, now, self._pods.new_wait(now))
                is_moved = True
            if await self._note_unreachable(tx, now) or is_moved:
                touched.add(live.job.job_id)
        await endings.finish(tx, ended)
        return touched

    def _ending(self, live: LiveRun) -> endings.Ending:
        """The outcome of the run from its pods' ends; pod 0 has the result."""
        end = live.pods[0].exit
        result = None if end is None else end.result
        return endings.Ending(live, conclude(self._pods.view(live)), result)

    async def _move_one(self, tx: Tx, live: LiveRun, proven: Moves, has_lease_news: bool) -> bool:
        """True when the run was changed."""
        if proven.is_broken:
            await transitions.stop(tx, live.run, "gang")
        elif has_lease_news and live.run.state is RunState.RUNNING:
            await transitions.suspect(tx, live.job, live.run)
        elif has_lease_news and live.run.state is RunState.SUSPECT:
            await transitions.recover(tx, live.job, live.run)
        else:
            return False
        return True

    async def _note_unreachable(self, tx: Tx, live: LiveRun) -> bool:
        """True when other nodes than before do not answer."""
        nodes = unreachable_nodes(live, self._pods.observations)
        if nodes is None or nodes.keys() == set(live.run.unreachable):
            return False
        await transitions.note_unreachable(tx, live, nodes)
        return True

    async def _grant(self, tx: Tx, state: State, decision: Decision) -> None:
        if decision.grants:
            grants = [(state.jobs[grant.job_id], grant) for grant in decision.grants]
            ports = self._ports.choose(self._held_ports(state), len(grants))
            await transitions.grant(tx, grants, ports)

    def _held_ports(self, state: State | None) -> set[int]:
        return {live.run.master_port for live in state.live_runs.values()} if state else set()

    async def _announce(self, tx: Tx, state: State, decision: Decision) -> bool:
        """Emit changed reasons of waiting jobs; True when some are left for the next round."""
        granted = [state.jobs[grant.job_id].queued for grant in decision.grants]
        queue = state.snapshot.queue.changed(granted, ())
        announced: dict[str, WaitingReason] = {}
        for waiting in decision.waiting:
            for job in waiting.unannounced():
                if len(announced) == MAX_ANNOUNCED:
                    await store.set_announced(tx.connection, announced)
                    return True
                held = waiting.reason in WAITS_FOR_HOLDERS
                await transitions.wait(
                    tx,
                    state.jobs,
                    state.jobs[job.job_id],
                    waiting,
                    queue.position(job),
                    holders(job.kind, state.snapshot.occupancy) if held else (),
                )
                announced[job.job_id] = waiting.reason
        if announced:
            await store.set_announced(tx.connection, announced)
        return False

    def _set_next_due(self, platform: Platform, state: State, now: datetime) -> None:
        """When everything is checked again: at the end of the next backoff, or at the resync."""
        wait = self._settings.resync_seconds
        backoff_end = state.snapshot.queue.next_delay_end(now)
        if backoff_end is not None:
            wait = min(wait, max(0.0, (backoff_end - now).total_seconds()))
        self._next_due = platform.clock.monotonic() + wait


def _is_started(live: LiveRun) -> bool:
    return live.run.state in (RunState.RUNNING, RunState.SUSPECT)
