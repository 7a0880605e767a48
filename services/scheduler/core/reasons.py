"""Why a job waits, in a closed list of reasons with a sentence for people.

The words come from the contract (`WaitingReason`); this module alone says which one applies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.fit import capacity, nodes_by_type
from services.scheduler.core.gang import FreeSlots
from services.scheduler.core.model import Node, QueuedJob

MAX_HOLDERS = 8
EXACT_POSITIONS = 20
# Jobs that wait for these reasons block nobody and are not considered before that changes.
SET_ASIDE = (WaitingReason.BACKING_OFF, WaitingReason.POOL_WITHOUT_NODES)
COARSE_STEP = 10


@dataclass(frozen=True, slots=True)
class HolderOf:
    """A job and how many slots it holds that the waiting job could use."""

    job_id: str
    num_slots: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting job, its place in the pool's queue (from 1) and why it stands there."""

    job_id: str
    reason: WaitingReason
    detail: str
    position: int
    holders: tuple[HolderOf, ...] = ()


def cannot_ever_fit(job: QueuedJob, nodes: Sequence[Node]) -> str | None:
    """What is missing for good until a node is added; None where the pool is large enough."""
    most = capacity(job, nodes)
    if most >= job.devices:
        return None
    kind = f"{job.device_type} devices" if job.device_type else "devices of one type"
    return f"pool {job.pool} has {most} {kind} and the job needs {job.devices}"


def why_not_placed(
    job: QueuedJob, nodes: Sequence[Node], free: FreeSlots
) -> tuple[WaitingReason, str]:
    """Why the first job of the queue cannot start now, though the pool is large enough."""
    num_free = max(
        sum(len(free[node.node_id]) for node in group)
        for group in nodes_by_type(job, nodes).values()
    )
    if num_free == 0:
        return WaitingReason.NO_FREE_DEVICES, f"all devices of pool {job.pool} are held"
    detail = f"{num_free} of the {job.devices} devices are free; all are granted together"
    return WaitingReason.GANG_INCOMPLETE, detail


def why_behind(job: QueuedJob, blocker: QueuedJob) -> tuple[WaitingReason, str]:
    """Why a job waits behind the blocked job at the head of its pool's queue."""
    if blocker.priority > job.priority:
        return (
            WaitingReason.BEHIND_HIGHER_PRIORITY,
            f"{blocker.job_id} has priority {blocker.priority} and waits for devices",
        )
    return (
        WaitingReason.BEHIND_EARLIER_SUBMISSION,
        f"{blocker.job_id} was submitted earlier and waits for devices",
    )


def is_news(told: tuple[str, int] | None, waiting: Waiting) -> bool:
    """Whether the waiting job must be told anew: another reason, or another place in the queue.

    Far back, places are told in steps of ten, or each grant would speak to the whole queue.
    """
    if told is None or told[0] != waiting.reason:
        return True
    before, position = told[1], waiting.position
    if before == position:
        return False
    return position <= EXACT_POSITIONS or abs(before - position) >= COARSE_STEP
