"""What the scheduler measures of queue, devices and restarts, for `instruments`.

Labels are bounded by the nodes and by closed lists: a pool that only a job names is `unknown`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from drivetrain_schemas.runs import RunState, WaitCause
from services.runtime.transaction import Tx
from services.scheduler import instruments, store, store_runs
from services.scheduler.core.cycle import Decision
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.projection import LiveRun
from services.scheduler.state import State
from services.scheduler.store import JobRow
from services.scheduler.store_allocations import AllocationRow

UNKNOWN_POOL = "unknown"
NO_REASON = "none"
# Also where there are none, so that a chart shows 0 instead of nothing.
_ALWAYS_TOLD = (("free", "none"), ("held", "job"), ("held", "trial"))
DeviceLabels = tuple[str, str, str, str]  # pool, device type, state, holder


class Measures:
    """Sets the gauges after each round. Devices are counted only where their holders changed."""

    def __init__(self) -> None:
        self._counted: Occupancy | None = None

    def report(self, state: State, decision: Decision) -> None:
        occupancy = state.snapshot.occupancy
        pools = {node.pool for node in occupancy.nodes}
        instruments.LIVE.set(len(state.live_runs))
        causes = Counter(live.run.waiting.cause for live in _starting(state) if live.run.waiting)
        for cause in WaitCause:
            instruments.WAITING_RUNS.labels(str(cause)).set(causes[cause])
        instruments.WAITING.clear()
        for waiting in decision.waiting:
            pool = waiting.jobs[0].kind.pool
            label = pool if pool in pools else UNKNOWN_POOL
            instruments.WAITING.labels(label, str(waiting.reason)).inc(len(waiting.jobs))
        if occupancy is not self._counted:
            self._counted = occupancy
            instruments.DEVICES.clear()
            for labels, number in devices(occupancy, state.jobs).items():
                instruments.DEVICES.labels(*labels).set(number)


def devices(occupancy: Occupancy, jobs: Mapping[str, JobRow]) -> Mapping[DeviceLabels, int]:
    """How many devices are in which state, and what holds them."""
    held: defaultdict[str, list[tuple[str, str, frozenset[int]]]] = defaultdict(list)
    for holding in occupancy.holdings.values():
        job = jobs.get(holding.job_id)
        holder = "trial" if job is not None and job.trial is not None else "job"
        for node_id, numbers in holding.by_node.items():
            state = "unreachable" if node_id in holding.unreachable else "held"
            held[node_id].append((state, holder, numbers))
    counts: Counter[DeviceLabels] = Counter()
    for node in occupancy.nodes:
        if node.is_removed:
            continue
        for kind in _ALWAYS_TOLD:
            counts[node.pool, node.device_type, *kind] += 0
        num_idle = node.num_slots
        for state, holder, numbers in held.get(node.node_id, ()):
            # A node that lost devices has fewer slots than are held of it.
            num_held = sum(number < node.num_slots for number in numbers)
            counts[node.pool, node.device_type, state, holder] += num_held
            num_idle -= num_held
        num_left = occupancy.num_left(node, num_idle) if node.is_schedulable else num_idle
        idle = "free" if node.is_schedulable else "closed"
        counts[node.pool, node.device_type, idle, "none"] += num_left
        if num_left < num_idle:
            counts[node.pool, node.device_type, "no_room", "none"] += num_idle - num_left
    return counts


def _starting(state: State) -> Iterator[LiveRun]:
    return (live for live in state.live_runs.values() if live.run.state is RunState.STARTING)


async def note_waits(tx: Tx, jobs: Sequence[JobRow], granted_at: Mapping[str, datetime]) -> None:
    """How long these jobs waited for their grant. Called before their rows are changed."""
    ready_at = await store.ready_since(tx.connection, list(granted_at))
    for job in jobs:
        if job.job_id in granted_at:
            seconds = (granted_at[job.job_id] - ready_at[job.job_id]).total_seconds()
            reason = str(job.announced or NO_REASON)
            wait = instruments.WAIT_SECONDS.labels(job.kind.pool, reason)
            tx.after_commit(partial(wait.observe, max(0.0, seconds)))


async def note_restarts(tx: Tx, run_ids: Collection[str]) -> None:
    """How long after the end of its last run each of these runs started, by phase."""
    if not run_ids:
        return
    for times in await store_runs.restart_times(tx.connection, run_ids):
        phases = {
            "wait": times.granted_at - times.ended_at,
            "start": times.started_at - times.granted_at,
            "restart": times.started_at - times.ended_at,
        }
        for phase, duration in phases.items():
            seconds = instruments.RECOVERY_SECONDS.labels(phase)
            tx.after_commit(partial(seconds.observe, max(0.0, duration.total_seconds())))


def note_release(tx: Tx, allocation: AllocationRow, outcome: str) -> None:
    """The slot-time of an ended run: what is not of a run that succeeded is partly lost."""
    assert allocation.released_at is not None
    seconds = (allocation.released_at - allocation.granted_at).total_seconds()
    used = instruments.SLOT_SECONDS.labels(allocation.pool, outcome)
    tx.after_commit(partial(used.inc, seconds * len(allocation.slots)))
