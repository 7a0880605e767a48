"""What the scheduler decides about: nodes and their slots, jobs in the queue, slots that are held.

Frozen values only. A `Slot` is the unit that is granted; its id is (node, number). A job asks for
`devices` slots of one pool and, because an allocation has one device type, of one device type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from drivetrain_schemas.jobs import WaitingReason

SHARED = "cpu"  # the one device type whose slots are not devices of their own


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """The unit of scheduling on a node."""

    node_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, or a virtual node.

    A node that is removed or has a reason in `unschedulable` keeps what it holds but accepts
    nothing new. Virtual nodes divide one machine's devices: slot n is its device
    `first_device + n`. None: which devices a pod gets is decided on the node, so only their number
    counts. `topology`: where it is, nodes with the same text are close to each other.
    """

    node_id: str
    pool: str
    device_type: str
    num_slots: int
    first_device: int | None = 0
    is_spot: bool | None = None
    topology: str | None = None
    unschedulable: str = ""
    is_removed: bool = False

    @property
    def is_schedulable(self) -> bool:
        return not self.is_removed and not self.unschedulable

    @property
    def has_numbered_devices(self) -> bool:
        return self.first_device is not None and self.device_type != SHARED

    def device_of(self, number: int) -> int | None:
        """The machine's device that this slot is; None where only their number counts."""
        if self.first_device is None or self.device_type == SHARED:
            return None
        return self.first_device + number


@dataclass(frozen=True, slots=True)
class Kind:
    """What decides where a job fits. Jobs of one kind differ only in their order."""

    pool: str
    device_type: str | None
    devices: int
    priority: int
    memory_bytes: int | None = None  # of all its slots; None: what a slot requests

    @property
    def slot_memory(self) -> int:
        """In thousandths of a byte, rounded up; 0 where it asks for none."""
        return 1000 * -(-(self.memory_bytes or 0) // self.devices)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits. `submission` counts accepted jobs, so it orders jobs of equal priority.

    `announced` is the reason that the last `job.waiting` gave; `last_run`: what became of it.
    """

    job_id: str
    kind: Kind
    submission: int
    not_before: datetime | None = None
    announced: WaitingReason | None = None
    tenant_id: str = ""
    study_id: str | None = None
    project: str | None = None
    last_run: str = ""
    # Sorts higher priority first, then earlier submission, then by id.
    order: tuple[int, int, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        order = (-self.kind.priority, self.submission, self.job_id)
        object.__setattr__(self, "order", order)


@dataclass(frozen=True, slots=True)
class Holding:
    """Slots that a job's run holds: granted and not yet released.

    `devices` are what they were on the machine at the grant; its nodes may have been cut again.
    `unreachable` are those of its nodes that do not answer.
    """

    job_id: str
    allocation_id: str
    slots: tuple[Slot, ...]
    devices: tuple[int, ...] = ()
    unreachable: tuple[str, ...] = ()
    memory_bytes: int | None = None  # of all its slots
    # The numbers of the slots, by node. A holding outlives many rounds; this is derived once.
    by_node: Mapping[str, frozenset[int]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        numbers: dict[str, set[int]] = {}
        for slot in self.slots:
            numbers.setdefault(slot.node_id, set()).add(slot.number)
        frozen = {node_id: frozenset(held) for node_id, held in numbers.items()}
        object.__setattr__(self, "by_node", frozen)

    @property
    def slot_memory(self) -> int:
        """As that of a kind."""
        return 1000 * -(-(self.memory_bytes or 0) // max(1, len(self.slots)))
