"""What every tenant may see: the nodes, which belong to the platform and name no job."""

from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved

SHARED_TYPES = frozenset(kind.kind.type for kind in (NodeRegistered, NodeRemoved))
