"""Hard constraints: on which nodes a job may run at all, and whether it could ever run there.

In: a job and the nodes. Out: nodes grouped by device type, because one allocation has one type.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from services.scheduler.core.model import Node, QueuedJob


def nodes_by_type(job: QueuedJob, nodes: Iterable[Node]) -> Mapping[str, tuple[Node, ...]]:
    """The nodes that the job may use, by device type, both in a fixed order."""
    groups: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: (node.device_type, node.node_id)):
        if _may_use(job, node):
            groups.setdefault(node.device_type, []).append(node)
    return {device_type: tuple(group) for device_type, group in groups.items()}


def capacity(job: QueuedJob, nodes: Iterable[Node]) -> int:
    """The most slots of one device type that the job could hold if all were free."""
    groups = nodes_by_type(job, nodes).values()
    return max((sum(node.num_slots for node in group) for group in groups), default=0)


def pool_capacities(nodes: Iterable[Node]) -> Mapping[tuple[str, str], int]:
    """How many slots each pool has of each device type."""
    slots: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        if node.is_schedulable:
            slots[(node.pool, node.device_type)] += node.num_slots
    return slots


def _may_use(job: QueuedJob, node: Node) -> bool:
    return (
        node.is_schedulable
        and node.pool == job.pool
        and (job.device_type is None or node.device_type == job.device_type)
    )
