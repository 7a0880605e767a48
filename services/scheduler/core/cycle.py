"""One decision over the whole queue: `decide(snapshot, now) -> Decision`.

Strict order per pool: the first job that does not fit blocks those behind it, so a large job is
never starved by small ones (backfill comes with its own rules later). Two kinds of job block
nobody: one that backs off after a failed run, and one that the pool is too small for.
Every job of the snapshot is either granted, told why it waits, or left for the next cycle
(`is_cut`, after `max_grants`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.fit import nodes_by_type
from services.scheduler.core.gang import place_job
from services.scheduler.core.model import Node, QueuedJob, Slot
from services.scheduler.core.queue import in_order
from services.scheduler.core.reasons import (
    MAX_HOLDERS,
    SET_ASIDE,
    HolderOf,
    Waiting,
    cannot_ever_fit,
    why_behind,
    why_not_placed,
)
from services.scheduler.core.snapshot import Snapshot

MAX_GRANTS = 64


@dataclass(frozen=True, slots=True)
class Grant:
    """These slots go to the job's next run."""

    job_id: str
    device_type: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    grants: tuple[Grant, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    is_cut: bool = False


def decide(snapshot: Snapshot, now: datetime, max_grants: int = MAX_GRANTS) -> Decision:
    """Same snapshot and time, same decision."""
    # 1. One queue per pool, in the total order.
    queues: dict[str, list[QueuedJob]] = {}
    for job in in_order(snapshot.waiting):
        queues.setdefault(job.pool, []).append(job)
    # 2. What is free, once; each grant takes from it.
    free = {node.node_id: list(snapshot.free_slots(node)) for node in snapshot.nodes}
    grants: list[Grant] = []
    waiting: list[Waiting] = []
    for pool in sorted(queues):
        nodes = tuple(node for node in snapshot.nodes if node.pool == pool)
        pool_waiting = _walk(queues[pool], nodes, free, grants, now, max_grants)
        if pool_waiting is None:
            return Decision(tuple(grants), (), is_cut=True)
        # 6. Who holds what each waiting job could use.
        waiting.extend(_name_holders(snapshot, nodes, queues[pool], pool_waiting))
    return Decision(tuple(grants), tuple(waiting))


def _walk(
    queue: Sequence[QueuedJob],
    nodes: Sequence[Node],
    free: dict[str, list[Slot]],
    grants: list[Grant],
    now: datetime,
    max_grants: int,
) -> list[Waiting] | None:
    """Grant from the head of one pool's queue; None when the limit of one cycle is reached."""
    waiting: list[Waiting] = []
    num_granted = 0
    blocker: QueuedJob | None = None
    for job in queue:
        position = job.place - num_granted if job.place else len(waiting) + 1
        # 3. Set aside what may not start yet and what never fits: neither blocks others.
        if job.not_before is not None and job.not_before > now:
            detail = "the last run failed; the next one waits before it starts"
            waiting.append(Waiting(job.job_id, WaitingReason.BACKING_OFF, detail, position))
            continue
        never = cannot_ever_fit(job, nodes)
        if never is not None:
            reason = WaitingReason.POOL_WITHOUT_NODES
            waiting.append(Waiting(job.job_id, reason, never, position))
            continue
        # 4. Behind a blocked job nothing starts.
        if blocker is not None:
            waiting.append(Waiting(job.job_id, *why_behind(job, blocker), position))
            continue
        # 5. All slots of the gang, or none.
        placed = place_job(job, nodes, free)
        if placed is None:
            blocker = job
            waiting.append(Waiting(job.job_id, *why_not_placed(job, nodes, free), position))
            continue
        if len(grants) == max_grants:
            return None
        device_type, slots = placed
        for slot in slots:
            free[slot.node_id].remove(slot)
        num_granted += 1
        grants.append(Grant(job.job_id, device_type, slots))
    return waiting


def _name_holders(
    snapshot: Snapshot,
    nodes: Sequence[Node],
    queue: Sequence[QueuedJob],
    waiting: Sequence[Waiting],
) -> list[Waiting]:
    jobs = {job.job_id: job for job in queue}
    named: dict[str | None, tuple[HolderOf, ...]] = {}
    result = []
    for entry in waiting:
        job = jobs[entry.job_id]
        if entry.reason in SET_ASIDE:
            result.append(entry)
            continue
        if job.device_type not in named:
            named[job.device_type] = _holders(snapshot, nodes, job)
        result.append(
            Waiting(
                entry.job_id,
                entry.reason,
                entry.detail,
                entry.position,
                named[job.device_type],
            )
        )
    return result


def _holders(snapshot: Snapshot, nodes: Sequence[Node], job: QueuedJob) -> tuple[HolderOf, ...]:
    usable = [node for group in nodes_by_type(job, nodes).values() for node in group]
    node_ids = {node.node_id for node in usable}
    devices = {node.device_of(number) for node in usable for number in range(node.num_slots)}
    held: Counter[str] = Counter()
    for holding in snapshot.holdings:
        num_slots = sum(slot.node_id in node_ids for slot in holding.slots)
        # Granted by nodes that are cut otherwise now, and in the way all the same.
        held[holding.job_id] += max(num_slots, len(devices.intersection(holding.devices)))
    order = sorted((+held).items(), key=lambda item: (-item[1], item[0]))
    return tuple(HolderOf(job_id, num_slots) for job_id, num_slots in order[:MAX_HOLDERS])
