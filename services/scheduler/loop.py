"""The reconcile loop: what is recorded, what is seen, what follows; again and again.

One round: look at the pods of live runs -> let the launcher act (launch, tell to stop, kill) -> one
transaction under the writer lock that records what is proven, ends what is over, and grants what is
free. The same round after a crash goes on where the last one was. Handlers only wake it; while runs
live it polls, and it reads everything anew at least every `resync_seconds`. There is one replica; a
session lock keeps its predecessor, while that still dies, from deciding as well.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import asyncpg

from drivetrain_schemas.runs import RunState
from services.runtime import logs
from services.runtime.errors import TemporaryError, is_temporary
from services.runtime.service import Platform
from services.runtime.transaction import Tx
from services.scheduler import fleet, instruments, store, store_runs, transitions
from services.scheduler.core.cycle import Decision, decide
from services.scheduler.core.fit import pool_capacities
from services.scheduler.core.invariants import check
from services.scheduler.core.outcome import conclude
from services.scheduler.core.pods import PodState, Sight
from services.scheduler.core.reasons import is_news
from services.scheduler.core.reconcile import moves
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.leases import Leases
from services.scheduler.pods import Acted, Pods
from services.scheduler.projection import LiveRun, is_alive
from services.scheduler.settings import SchedulerSettings

log = logs.get()

STANDBY_SECONDS = 1.0


class Loop:
    """The one writer of runs and allocations. `wake` may be called from anywhere in the process."""

    def __init__(self, settings: SchedulerSettings, pods: Pods, leases: Leases) -> None:
        self._settings = settings
        self._pods = pods
        self._leases = leases
        self._woken = asyncio.Event()
        self._lives: tuple[LiveRun, ...] = ()
        self._next_due: float = 0.0

    def wake(self) -> None:
        self._woken.set()

    async def run(self, platform: Platform) -> None:
        """A task of the service. What is away for a while is waited for."""
        while not platform.stopping.is_set():
            try:
                await self._lead(platform)
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning("scheduler waits", error=repr(error))
                await platform.clock.sleep(STANDBY_SECONDS)

    async def _lead(self, platform: Platform) -> None:
        connection = await platform.database.dedicated_connection()
        try:
            while not await store.try_lead(connection):
                await platform.clock.sleep(STANDBY_SECONDS)
            log.info("scheduler leads")
            # Another one may have led meanwhile: what was known is read anew before any act.
            self._lives = ()
            self._next_due = 0.0
            async with platform.database.transaction() as tx:
                await store.lock(tx.connection)
                await fleet.register(tx, fleet.nodes_of(self._settings))
            while not platform.stopping.is_set():
                if connection.is_closed():
                    raise TemporaryError("the leader's connection is lost, and its lock with it")
                with instruments.ROUND_SECONDS.time():
                    is_moving = await self.round(platform)
                if not is_moving:
                    await self._wait(platform)
        finally:
            await connection.close(timeout=1.0)

    async def _wait(self, platform: Platform) -> None:
        left = max(0.0, self._next_due - platform.clock.monotonic())
        timeout = min(left, self._settings.poll_seconds) if self._lives else left
        try:
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        except TimeoutError:
            return

    async def round(self, platform: Platform) -> bool:
        """True when something moved, so that the next round should come at once."""
        is_due = self._woken.is_set() or platform.clock.monotonic() >= self._next_due
        self._woken.clear()
        has_changed = await self._pods.look(self._lives)
        acted = await self._pods.act(self._lives)
        if not (is_due or has_changed or acted or self._has_lease_news()):
            return False
        has_moved = await self._apply(platform, acted)
        return has_moved or bool(acted)

    def _has_lease_news(self) -> bool:
        return any(
            (live.run.state is RunState.RUNNING and self._leases.is_lapsed(live.run.run_id))
            or (live.run.state is RunState.SUSPECT and self._leases.is_heard(live.run.run_id))
            for live in self._lives
        )

    async def _apply(self, platform: Platform, acted: Acted) -> bool:
        before = self._lives
        async with platform.database.transaction() as tx:
            await store.lock(tx.connection)
            await self._record(tx, await load(tx.connection), acted)
            for live in await load(tx.connection):
                await self._move(tx, live)
            # Read after the moves, so that what was put back without a wait starts at once.
            now = await store.now(tx.connection)
            snapshot = await read_snapshot(tx.connection)
            decision = decide(snapshot, now)
            await self._grant(tx, decision)
            has_more = await _tell_waiting(tx, decision)
            backoff_end = await store.next_backoff_end(tx.connection, now)
            lives = await load(tx.connection)
            after = await read_snapshot(tx.connection)
        self._lives = lives
        self._leases.watch_runs([live.run.run_id for live in lives if _is_started(live)])
        self._set_next_due(platform, backoff_end, now)
        report(after, lives, decision)
        if has_more or decision.is_cut:
            self._next_due = 0.0  # go on at once, whatever else happens
        return has_more or decision.is_cut or lives != before

    async def _record(self, tx: Tx, lives: Sequence[LiveRun], acted: Acted) -> None:
        """What the launcher did and saw, on the pods' rows."""
        if acted.launched:
            await store_runs.set_launched(tx.connection, acted.launched)
        alive: list[str] = []
        for pod in (pod for live in lives for pod in live.pods if pod.finished_at is None):
            seen = self._pods.observations.get(pod.pod_id)
            if seen is not None and is_alive(seen) and not pod.was_alive:
                alive.append(pod.pod_id)
            if seen is not None and seen.sight is Sight.ENDED:
                await store_runs.finish_pod(tx.connection, pod.pod_id, PodState.ENDED, seen.exit)
            elif pod.pod_id in acted.gone:
                await store_runs.finish_pod(tx.connection, pod.pod_id, PodState.LOST, None)
        if alive:
            await store_runs.set_alive(tx.connection, alive)

    async def _move(self, tx: Tx, live: LiveRun) -> None:
        """The changes of one run that are proven."""
        proven = moves(self._pods.view(live))
        if proven.is_started:
            live = await transitions.start(tx, live)
        if proven.is_finished:
            ends = [pod.exit for pod in live.pods]
            result = ends[0].result if ends[0] is not None else None
            await transitions.finish(tx, live, conclude(self._pods.view(live)), result)
        elif proven.is_broken:
            await transitions.stop(tx, live.run, "gang")
        elif live.run.state is RunState.RUNNING and self._leases.is_lapsed(live.run.run_id):
            await transitions.suspect(tx, live.job, live.run)
        elif live.run.state is RunState.SUSPECT and self._leases.is_heard(live.run.run_id):
            await transitions.hear(tx, live.job, live.run)

    async def _grant(self, tx: Tx, decision: Decision) -> None:
        jobs = await store.jobs(tx.connection, [grant.job_id for grant in decision.grants])
        for grant in decision.grants:
            await transitions.grant(tx, jobs[grant.job_id], grant, self._pods.launcher.is_port_free)

    def _set_next_due(
        self, platform: Platform, backoff_end: datetime | None, now: datetime
    ) -> None:
        """When to look at everything again: the next backoff that ends, or the resync."""
        wait = self._settings.resync_seconds
        if backoff_end is not None:
            wait = min(wait, max(0.0, (backoff_end - now).total_seconds()))
        self._next_due = platform.clock.monotonic() + wait


async def load(connection: asyncpg.Connection) -> tuple[LiveRun, ...]:
    """Every live run with its job and pods."""
    runs = await store_runs.live_runs(connection)
    if not runs:
        return ()
    jobs = await store.jobs(connection, [run.job_id for run in runs])
    pods = await store_runs.live_pods(connection)
    return tuple(LiveRun(jobs[run.job_id], run, pods.get(run.run_id, ())) for run in runs)


async def read_snapshot(connection: asyncpg.Connection) -> Snapshot:
    nodes = await store.nodes(connection)
    return Snapshot(
        nodes=nodes,
        waiting=await store.queue(connection, pool_capacities(nodes)),
        holdings=await store_runs.holdings(connection),
    )


async def _tell_waiting(tx: Tx, decision: Decision) -> bool:
    """Tell what is news; True when some of it is left for the next round."""
    told = await store.told_waiting(tx.connection)
    news = [waiting for waiting in decision.waiting if is_news(told.get(waiting.job_id), waiting)]
    jobs = await store.jobs(tx.connection, [waiting.job_id for waiting in news[: store.MAX_TOLD]])
    for waiting in news[: store.MAX_TOLD]:
        await transitions.wait(tx, jobs[waiting.job_id], waiting)
    return len(news) > store.MAX_TOLD


def report(snapshot: Snapshot, lives: Sequence[LiveRun], decision: Decision) -> None:
    """Gauges, and the invariants: broken ones are counted and logged."""
    instruments.LIVE.set(len(lives))
    instruments.WAITING.clear()
    for waiting in decision.waiting:
        instruments.WAITING.labels(str(waiting.reason)).inc()
    for broken in check(snapshot):
        instruments.BROKEN_INVARIANTS.inc()
        log.error("invariant broken", invariant=broken)


def _is_started(live: LiveRun) -> bool:
    return live.run.state in (RunState.RUNNING, RunState.SUSPECT)
