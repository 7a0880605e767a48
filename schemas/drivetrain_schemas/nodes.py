"""Nodes: the machines (or virtual nodes) whose slots are granted."""

from typing import Annotated

from pydantic import Field, StringConstraints

from drivetrain_schemas.base import Payload, event
from drivetrain_schemas.ids import NodeId
from drivetrain_schemas.topics import EVENTS_NODES


@event("node.registered", topic=EVENTS_NODES, producer="scheduler")
class NodeRegistered(Payload):
    """The node's slots may be granted; also emitted when its description changes.

    `is_spot`: its provider may take it away at any time. `topology`: where it is; nodes with the
    same text are close to each other. `unschedulable_reason`: why nothing new is placed on it at
    the moment, such as a cordon.
    """

    node_id: NodeId
    pool: str
    device_type: str
    num_slots: Annotated[int, Field(ge=1, le=100_000)]
    is_spot: bool | None = None
    topology: Annotated[str, StringConstraints(max_length=253)] | None = None
    unschedulable_reason: Annotated[str, StringConstraints(max_length=1000)] | None = None


@event("node.removed", topic=EVENTS_NODES, producer="scheduler")
class NodeRemoved(Payload):
    """No more runs are placed on the node."""

    node_id: NodeId
    reason: str
