"""The nodes of the source, stored in the database and published.

A `Fleet` keeps the source's last answer; the loop's transaction stores it. A node that the source
no longer lists is removed: it accepts nothing new, and what runs there runs to its end.
"""

import asyncio
from collections.abc import Callable, Sequence

from drivetrain_schemas.ids import DEFAULT_TENANT
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from services.runtime import logs
from services.runtime.service import Platform
from services.runtime.transaction import Tx
from services.scheduler import instruments, store
from services.scheduler.core.mask import Mask
from services.scheduler.core.model import Node
from services.scheduler.launchers.base import LauncherUnavailable
from services.scheduler.launchers.calls import limited
from services.scheduler.launchers.nodes import NodeSource

log = logs.get()

AGAIN_SECONDS = 1.0  # after a failure


class Fleet:
    """`wanted`: all nodes, from the source's last answer; None before the first one."""

    def __init__(self, source: NodeSource, resync_seconds: float) -> None:
        self.wanted: tuple[Node, ...] | None = None
        self._seen_mask: Mask | None = None
        self.gone = source.gone
        self._source = source
        self._resync_seconds = resync_seconds
        self._woken = asyncio.Event()
        self._is_away = False

    @property
    def mask(self) -> Mask | None:
        """What others leave of the nodes now: known in memory only."""
        return self._source.mask()

    async def look(self) -> bool:
        """Read the source; True when a node, or what is left of one, is not as before. When it is
        unavailable, the last answer stays."""
        self._woken.clear()
        try:
            nodes = await limited(self._source.nodes())
        except LauncherUnavailable as error:
            if not self._is_away:
                log.warning("nodes are not known, the last ones stay", error=str(error))
            self._is_away = True
            return False
        self._is_away = False
        found = tuple(sorted(nodes, key=lambda node: node.node_id))
        before, self._seen_mask = self._seen_mask, self.mask
        is_same = found == self.wanted
        if not is_same:
            self.wanted = found
        return not is_same or self._seen_mask is not before

    async def watch(self) -> None:
        """A task of the service: changes are noticed without waiting for the next resync."""
        await self._source.watch(self._woken.set)

    async def follow(self, platform: Platform, wake: Callable[[], None]) -> None:
        """A task of the service: calls `wake` when a node has changed."""
        while not platform.stopping.is_set():
            if await self.look():
                wake()
            try:
                async with asyncio.timeout(
                    AGAIN_SECONDS if self._is_away else self._resync_seconds
                ):
                    await self._woken.wait()
            except TimeoutError:
                continue


async def register(tx: Tx, wanted: Sequence[Node], gone: str) -> None:
    """Make the stored nodes match these; only changes are published."""
    known = {node.node_id: node for node in await store.nodes(tx.connection)}
    for node in wanted:
        if known.get(node.node_id) != node:
            await store.put_node(tx.connection, node)
            await tx.emit(_registered(node), tenant_id=DEFAULT_TENANT)
            log.info(
                "node registered",
                node_id=node.node_id,
                num_slots=node.num_slots,
                unschedulable=node.unschedulable,
            )
    for node_id in sorted(known.keys() - {node.node_id for node in wanted}):
        if not known[node_id].is_removed:
            await store.remove_node(tx.connection, node_id)
            removed = NodeRemoved(node_id=node_id, reason=gone)
            await tx.emit(removed, tenant_id=DEFAULT_TENANT)
            log.info("node removed", node_id=node_id)
    num_open = sum(node.is_schedulable for node in wanted)
    instruments.NODES.labels("schedulable").set(num_open)
    instruments.NODES.labels("unschedulable").set(len(wanted) - num_open)


def _registered(node: Node) -> NodeRegistered:
    return NodeRegistered(
        node_id=node.node_id,
        pool=node.pool,
        device_type=node.device_type,
        num_slots=node.num_slots,
        is_spot=node.is_spot,
        topology=node.topology,
        unschedulable_reason=node.unschedulable or None,
    )
