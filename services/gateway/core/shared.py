"""What every tenant may see: the nodes, which belong to the platform and name no job."""

from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved

SHARED_TYPES = frozenset(payload.kind.type for payload in (NodeRegistered, NodeRemoved))
