"""The frozen view that one decision is made on: nodes, waiting jobs and held slots.

`free_slots` is derived, never stored, so a snapshot cannot contradict itself.
"""

from dataclasses import dataclass

from services.scheduler.core.model import Holding, Node, QueuedJob, Slot


@dataclass(frozen=True, slots=True)
class Snapshot:
    nodes: tuple[Node, ...] = ()
    waiting: tuple[QueuedJob, ...] = ()
    holdings: tuple[Holding, ...] = ()

    def held_slots(self) -> frozenset[Slot]:
        return frozenset(slot for holding in self.holdings for slot in holding.slots)

    def held_devices(self) -> frozenset[int]:
        """Of the machine, whatever node they were granted by."""
        return frozenset(device for holding in self.holdings for device in holding.devices)

    def free_slots(self, node: Node) -> tuple[Slot, ...]:
        """The slots of this node that may be granted now, lowest number first."""
        if not node.is_schedulable:
            return ()
        held = self.held_slots()
        devices = self.held_devices()
        return tuple(
            slot
            for slot in (Slot(node.node_id, number) for number in range(node.num_slots))
            if slot not in held and node.device_of(slot.number) not in devices
        )
