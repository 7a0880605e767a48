"""The frozen view that one decision is made on: nodes, waiting jobs and held slots.

`free_slots` is derived, never stored, so a snapshot cannot contradict itself. A what-if copy is
`with_holding`.
"""

from dataclasses import dataclass, replace

from services.scheduler.core.model import Holding, Node, QueuedJob, Slot


@dataclass(frozen=True, slots=True)
class Snapshot:
    nodes: tuple[Node, ...] = ()
    waiting: tuple[QueuedJob, ...] = ()
    holdings: tuple[Holding, ...] = ()

    def held_slots(self) -> frozenset[Slot]:
        return frozenset(slot for holding in self.holdings for slot in holding.slots)

    def free_slots(self, node: Node) -> tuple[Slot, ...]:
        """The slots of this node that may be granted now, lowest number first."""
        if not node.is_schedulable:
            return ()
        held = self.held_slots()
        every = (Slot(node.node_id, number) for number in range(node.num_slots))
        return tuple(slot for slot in every if slot not in held)

    def with_holding(self, holding: Holding) -> "Snapshot":
        """The view after `holding` was granted: its job waits no longer."""
        return replace(
            self,
            holdings=(*self.holdings, holding),
            waiting=tuple(job for job in self.waiting if job.job_id != holding.job_id),
        )
