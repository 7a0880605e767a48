"""Nodes, and the slots that runs hold on them."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from services.gateway.core.jobs import earliest
from services.gateway.core.noun import NEVER, Noun, as_it_is, by, newest


@dataclass(frozen=True, slots=True)
class Node:
    """Removed while `removed_seq` is above `registered_seq`."""

    node_id: str
    registered_seq: int = NEVER
    removed_seq: int = NEVER
    pool: str | None = None
    device_type: str | None = None
    num_slots: int = 0


def _registered(node: Node, event: Event[NodeRegistered]) -> Node:
    found = event.payload
    return newest(
        node,
        "registered_seq",
        event,
        pool=found.pool,
        device_type=found.device_type,
        num_slots=found.num_slots,
    )


def _removed(node: Node, event: Event[NodeRemoved]) -> Node:
    return newest(node, "removed_seq", event)


def _new_node(event: Event[Any]) -> Node:
    return Node(event.payload.node_id)


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


def _released(allocation: Allocation, event: Event[AllocationReleased]) -> Allocation:
    released_at = earliest(allocation.released_at, event.payload.released_at)
    return replace(allocation, released_at=released_at)


def _new_allocation(event: Event[Any]) -> Allocation:
    granted = event.payload
    return Allocation(
        allocation_id=granted.allocation_id,
        job_id=granted.job_id,
        run_id=granted.run_id,
        attempt=granted.attempt,
        slots=[slot.model_dump(mode="json") for slot in granted.slots],
        granted_at=granted.granted_at,
    )


NODES = Noun(
    table="nodes",
    view=Node,
    key=("node_id",),
    key_of=by("node_id"),
    new=_new_node,
    rules={NodeRegistered: _registered, NodeRemoved: _removed},
)
ALLOCATIONS = Noun(
    table="allocations",
    view=Allocation,
    key=("allocation_id",),
    key_of=by("allocation_id"),
    new=_new_allocation,
    rules={AllocationGranted: as_it_is, AllocationReleased: _released},
)
