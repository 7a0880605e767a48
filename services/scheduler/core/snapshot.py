"""The frozen view that one decision is made on: slots and their holders, the waiting jobs,
and the budgets that hold some of them back."""

from dataclasses import dataclass, field

from services.scheduler.core.holds import Hold
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.queue import Queue


@dataclass(frozen=True, slots=True)
class Snapshot:
    occupancy: Occupancy = field(default_factory=Occupancy)
    queue: Queue = field(default_factory=Queue)
    holds: tuple[Hold, ...] = ()
