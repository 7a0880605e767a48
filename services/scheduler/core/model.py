"""What the scheduler decides about: nodes and their slots, jobs in the queue, slots that are held.

Frozen values only. A `Slot` is the unit that is granted; its id is (node, number). A job asks for
`devices` slots of one pool and, because an allocation has one device type, of one device type.
"""

from dataclasses import dataclass
from datetime import datetime

SHARED = "cpu"  # the one device type whose slots are no devices of their own


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A schedulable place on a node."""

    node_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, or a virtual node. A removed node keeps what it holds but takes nothing new.

    Virtual nodes share out one machine's devices: slot n is its device `first_device + n`.
    """

    node_id: str
    pool: str
    device_type: str
    num_slots: int
    first_device: int = 0
    is_schedulable: bool = True

    def device_of(self, number: int) -> int | None:
        """The machine's device that this slot is; None where slots share the CPUs."""
        return None if self.device_type == SHARED else self.first_device + number


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits. `submission` counts accepted jobs, so it orders equals.

    `place` is where it stands among all waiting jobs of its pool, from 1; 0 where all are at hand.
    """

    job_id: str
    pool: str
    devices: int
    submission: int
    priority: int = 0
    device_type: str | None = None
    not_before: datetime | None = None
    place: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """Slots that a job's run holds: granted and not yet released.

    `devices` are what they were on the machine at the grant; its nodes may have been cut anew.
    """

    job_id: str
    allocation_id: str
    slots: tuple[Slot, ...]
    devices: tuple[int, ...] = ()
