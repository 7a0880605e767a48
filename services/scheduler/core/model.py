"""What the scheduler decides about: nodes and their slots, jobs in the queue, slots that are held.

Frozen values only. A `Slot` is the unit that is granted; its id is (node, number). A job asks for
`devices` slots of one pool and, because an allocation has one device type, of one device type.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A schedulable place on a node."""

    node_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, or a virtual node. A removed node keeps what it holds but takes nothing new.

    Slot n is the machine's device `first_device + n`: virtual nodes share out one machine's.
    """

    node_id: str
    pool: str
    device_type: str
    num_slots: int
    first_device: int = 0
    is_schedulable: bool = True


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits. `submission` counts accepted jobs, so it orders equals."""

    job_id: str
    pool: str
    devices: int
    submission: int
    priority: int = 0
    device_type: str | None = None
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """Slots that a job's run holds: granted and not yet released."""

    job_id: str
    allocation_id: str
    slots: tuple[Slot, ...]
