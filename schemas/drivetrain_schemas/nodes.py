"""Nodes: the machines (or virtual nodes) whose slots are granted."""

from typing import Annotated

from pydantic import Field

from drivetrain_schemas.base import Payload, event
from drivetrain_schemas.ids import NodeId
from drivetrain_schemas.topics import EVENTS_NODES


@event("node.registered", topic=EVENTS_NODES, producer="scheduler")
class NodeRegistered(Payload):
    """The node's slots may be granted; also emitted when its description changes."""

    node_id: NodeId
    pool: str
    device_type: str
    num_slots: Annotated[int, Field(ge=1, le=100_000)]


@event("node.removed", topic=EVENTS_NODES, producer="scheduler")
class NodeRemoved(Payload):
    """No more runs are placed on the node."""

    node_id: NodeId
    reason: str
