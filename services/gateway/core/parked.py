"""What became of a parked record.

In: its parkings (the records on which a service failed) and people's decisions about it, in any
order, also twice. Out: whether it is open, replayed or discarded. A decision covers the parkings
before it, so a replayed record that was parked again is open again, and has failed again.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


class ParkedState(StrEnum):
    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, order=True)
class Decision:
    """The greatest is in effect: the one about the most parkings, then the latest."""

    num_parkings: int
    decided_at: datetime
    state: ParkedState
    note: str = ""


@dataclass(frozen=True, slots=True)
class Handling:
    """`places` are topic/partition/offset of the records on which a service failed."""

    places: frozenset[str] = frozenset()
    decision: Decision | None = None
    replayed_at: datetime | None = None

    @property
    def num_parkings(self) -> int:
        return len(self.places)

    @property
    def state(self) -> ParkedState:
        if self.decision is None or self.decision.num_parkings < self.num_parkings:
            return ParkedState.OPEN
        return self.decision.state

    @property
    def has_failed_again(self) -> bool:
        return self.state is ParkedState.OPEN and self.replayed_at is not None


def parked_at_place(handling: Handling, place: str) -> Handling:
    return replace(handling, places=handling.places | {place})


def decided(handling: Handling, decision: Decision) -> Handling:
    latest = decision if handling.decision is None else max(handling.decision, decision)
    replayed_at = handling.replayed_at
    if decision.state is ParkedState.REPLAYED:
        replayed_at = max(replayed_at or decision.decided_at, decision.decided_at)
    return replace(handling, decision=latest, replayed_at=replayed_at)
