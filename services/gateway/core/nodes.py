"""Nodes, and the slots that runs hold on them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from services.gateway.core.noun import NEVER, Noun, as_it_is, changed, earliest, given, newest


@dataclass(frozen=True, slots=True)
class Node:
    """Removed while `removed_seq` is above `registered_seq`."""

    node_id: str
    registered_seq: int = NEVER
    removed_seq: int = NEVER
    pool: str | None = None
    device_type: str | None = None
    num_slots: int = 0
    is_spot: bool | None = None
    topology: str | None = None
    unschedulable_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """A release is final, whichever of the two events comes first."""

    allocation_id: str
    job_id: str
    run_id: str
    attempt: int
    slots: list[Any]
    granted_at: datetime
    released_at: datetime | None = None


def _registered(node: Node, event: Event[NodeRegistered]) -> Node:
    facts = given(
        event,
        *("pool", "device_type", "num_slots"),
        *("is_spot", "topology", "unschedulable_reason"),
    )
    return newest(node, "registered_seq", event, **facts)


def _removed(node: Node, event: Event[NodeRemoved]) -> Node:
    return newest(node, "removed_seq", event)


def _released(allocation: Allocation, event: Event[AllocationReleased]) -> Allocation:
    released_at = earliest(allocation.released_at, event.payload.released_at)
    return changed(allocation, released_at=released_at)


NODES = Noun(
    table="nodes",
    view=Node,
    key=("node_id",),
    rules={NodeRegistered: _registered, NodeRemoved: _removed},
)
ALLOCATIONS = Noun(
    table="allocations",
    view=Allocation,
    key=("allocation_id",),
    rules={AllocationGranted: as_it_is, AllocationReleased: _released},
)
