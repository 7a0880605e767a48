"""Where nodes come from: the interface of a source, and the one that the settings are.

A source belongs to its launcher: pods are started on the nodes that it names.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from services.scheduler.core.mask import Mask
from services.scheduler.core.model import Node
from services.scheduler.settings import SchedulerSettings


class NodeSource(Protocol):
    """`gone`: why a node is removed that it no longer lists."""

    gone: str

    async def nodes(self) -> Sequence[Node]:
        """All nodes as they are now. Raises LauncherUnavailable: nothing is known."""

    def mask(self) -> Mask | None:
        """What others leave of these nodes, the same value while that is the same; None: all."""

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a node may have changed, until cancelled. Raises nothing."""


class NodesOfSettings:
    """They change with a new start only."""

    gone = "no longer in the settings"

    def __init__(self, settings: SchedulerSettings) -> None:
        self._nodes = tuple(
            Node(
                node.node_id,
                node.pool,
                node.device_type,
                node.slots,
                node.first_device,
                node.is_spot,
            )
            for node in settings.nodes
        )

    async def nodes(self) -> Sequence[Node]:
        return self._nodes

    def mask(self) -> None:
        """Pods of one machine are not refused for what others use there."""
        return None

    async def watch(self, wake: Callable[[], None]) -> None:
        await asyncio.get_running_loop().create_future()
