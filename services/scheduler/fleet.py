"""The nodes of the settings, stored in the database and published.

A node that the settings no longer contain is removed: it accepts nothing new, and what runs there
runs to its end.
"""

from collections.abc import Sequence

from drivetrain_schemas.ids import DEFAULT_TENANT
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import store
from services.scheduler.core.model import Node
from services.scheduler.settings import SchedulerSettings

log = logs.get()


def nodes_of(settings: SchedulerSettings) -> tuple[Node, ...]:
    return tuple(
        Node(node.node_id, node.pool, node.device_type, node.slots, node.first_device)
        for node in settings.nodes
    )


async def register(tx: Tx, wanted: Sequence[Node]) -> None:
    """Make the stored nodes match the settings; only changes are published."""
    known = {node.node_id: node for node in await store.nodes(tx.connection)}
    for node in wanted:
        if known.get(node.node_id) != node:
            await store.put_node(tx.connection, node)
            event = NodeRegistered(
                node_id=node.node_id,
                pool=node.pool,
                device_type=node.device_type,
                num_slots=node.num_slots,
            )
            await tx.emit(event, tenant_id=DEFAULT_TENANT)
            log.info("node registered", node_id=node.node_id, num_slots=node.num_slots)
    for node_id in sorted(known.keys() - {node.node_id for node in wanted}):
        if known[node_id].is_schedulable:
            await store.remove_node(tx.connection, node_id)
            removed = NodeRemoved(node_id=node_id, reason="no longer in the settings")
            await tx.emit(removed, tenant_id=DEFAULT_TENANT)
            log.info("node removed", node_id=node_id)
