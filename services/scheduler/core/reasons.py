"""Why a job waits, in a closed list of reasons with a sentence for people.

The reasons are the contract's (`WaitingReason`); this module alone decides which one applies.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.model import Kind, QueuedJob
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.snapshot import Snapshot

MAX_HOLDERS = 8
MAX_NAMED_NODES = 4
_JOB_ID = re.compile("job_[a-z2-7]{26}")
_BEHIND = (WaitingReason.BEHIND_HIGHER_PRIORITY, WaitingReason.BEHIND_EARLIER_SUBMISSION)


@dataclass(frozen=True, slots=True)
class HolderOf:
    """A job and how many slots it holds that the waiting job could use; why they stay held."""

    job_id: str
    num_slots: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Jobs of one kind, in order, that wait for one reason."""

    jobs: tuple[QueuedJob, ...]
    reason: WaitingReason
    detail: str

    def unannounced(self) -> Iterator[QueuedJob]:
        """Jobs that have no announced reason, or one that is out of date.

        Behind whom a job waits is no news: one job of higher priority that comes or goes would be
        an event for each job of the queue. `Position` has the reason of this moment.
        """
        equal = _BEHIND if self.reason in _BEHIND else (self.reason,)
        return (job for job in self.jobs if job.announced not in equal)


@dataclass(frozen=True, slots=True)
class Position:
    """A waiting job's position in its pool's queue now, and why it waits. The reason is None for a
    job that no cycle has considered yet."""

    position: int
    reason: WaitingReason | None
    detail: str
    holders: tuple[HolderOf, ...]


def position_of(job: QueuedJob, snapshot: Snapshot, waiting: Iterable[Waiting]) -> Position:
    """`waiting` is the last decision's."""
    decided = next(
        (entry for entry in waiting if any(it.job_id == job.job_id for it in entry.jobs)), None
    )
    return Position(
        position=snapshot.queue.position(job),
        reason=decided.reason if decided else job.announced,
        detail=decided.detail if decided else "",
        holders=holders(job.kind, snapshot.occupancy),
    )


def why_never(kind: Kind, occupancy: Occupancy) -> tuple[WaitingReason, str]:
    """What is missing until a node is added."""
    what = f"{kind.device_type} devices" if kind.device_type else "devices of one type"
    detail = f"pool {kind.pool} has {occupancy.most_slots(kind)} {what}, {kind.devices} are needed"
    return WaitingReason.POOL_WITHOUT_NODES, detail + not_counted(kind, occupancy)


def not_counted(kind: Kind, occupancy: Occupancy) -> str:
    """The pool's nodes that accept no runs at the moment, and why."""
    closed = occupancy.closed.get((kind.pool, kind.device_type), ())
    named = ", ".join(f"{node.node_id} ({node.unschedulable})" for node in closed[:MAX_NAMED_NODES])
    more = f" and {len(closed) - MAX_NAMED_NODES} more" if len(closed) > MAX_NAMED_NODES else ""
    return f"; not counted: {named}{more}" if closed else ""


def why_not_placed(kind: Kind, num_free: int, limits: str = "") -> tuple[WaitingReason, str]:
    """Why a job that nothing blocks cannot start now; `num_free` of the best device type.
    `limits`: why free slots cannot be used, as `limited` says it."""
    if num_free == 0:
        what = f"{kind.device_type} devices" if kind.device_type else "devices"
        where = f"of pool {kind.pool} are in use"
        detail = f"all {what} {where}" if not limits else f"all {what} {where} or cannot be used"
        return WaitingReason.NO_FREE_DEVICES, detail + limits
    detail = f"{num_free} of the {kind.devices} devices are free; a gang starts only as a whole"
    return WaitingReason.GANG_INCOMPLETE, detail + limits


def why_no_room(kind: Kind, num_fitting: int, limits: str) -> tuple[WaitingReason, str]:
    """Why a job has to wait for others than jobs: their pods leave room for too few slots."""
    beside = f"beside other pods, pool {kind.pool} has room for {num_fitting} devices"
    return WaitingReason.NO_ROOM, f"{beside}, {kind.devices} are needed{limits}"


def limited(limits: Iterable[Sequence[str]]) -> str:
    """The first of these sentences on nodes, to be added to another one."""
    found = tuple(limits)
    named = list(islice(chain.from_iterable(found), MAX_NAMED_NODES))
    num_more = sum(map(len, found)) - len(named)
    return "".join(f"; {each}" for each in named) + f"; and {num_more} more nodes" * bool(num_more)


def why_behind(kind: Kind, blocker: QueuedJob) -> tuple[WaitingReason, str]:
    """Why a job waits behind a blocked job that needs the same devices."""
    if blocker.kind.priority > kind.priority:
        return (
            WaitingReason.BEHIND_HIGHER_PRIORITY,
            f"{blocker.job_id} has priority {blocker.kind.priority} and waits for devices",
        )
    return (
        WaitingReason.BEHIND_EARLIER_SUBMISSION,
        f"{blocker.job_id} was submitted earlier and waits for devices",
    )


def holders(kind: Kind, occupancy: Occupancy) -> tuple[HolderOf, ...]:
    """Who holds most of the slots that a job of this kind could use."""
    types = occupancy.usable_types(kind)
    usable = [
        node
        for node in occupancy.nodes
        if node.is_schedulable and node.pool == kind.pool and node.device_type in types
    ]
    node_ids = {node.node_id for node in usable}
    devices = {node.device_of(number) for node in usable for number in range(node.num_slots)}
    held: Counter[str] = Counter()
    for holding in occupancy.holdings.values():
        num_slots = sum(
            len(holding.by_node[node_id]) for node_id in node_ids & holding.by_node.keys()
        )
        # Granted when nodes were divided differently, and still not free.
        held[holding.job_id] += max(num_slots, len(devices.intersection(holding.devices)))
    order = sorted((+held).items(), key=lambda item: (-item[1], item[0]))
    held_by = {holding.job_id: holding for holding in occupancy.holdings.values()}
    return tuple(
        HolderOf(job_id, num_slots, _why_held(held_by[job_id].unreachable))
        for job_id, num_slots in order[:MAX_HOLDERS]
    )


def without_other_tenants(
    detail: str, found: Iterable[HolderOf], is_own: Callable[[str], bool]
) -> tuple[str, tuple[HolderOf, ...]]:
    """The detail and the holders as the job's tenant sees them: no job of another is named."""
    shown = _JOB_ID.sub(lambda job: job[0] if is_own(job[0]) else "another tenant's job", detail)
    return shown, tuple(holder for holder in found if is_own(holder.job_id))


def _why_held(unreachable: Sequence[str]) -> str:
    """Empty where the job's end releases its slots."""
    if not unreachable:
        return ""
    more = f" and {len(unreachable) - MAX_NAMED_NODES} more" * (len(unreachable) > MAX_NAMED_NODES)
    named = ", ".join(unreachable[:MAX_NAMED_NODES])
    return f"does not answer: {named}{more}; held until its pods are proven gone"
