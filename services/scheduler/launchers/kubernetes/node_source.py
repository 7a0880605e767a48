"""The nodes of the cluster as the scheduler's nodes, from a list and a watch."""

from collections.abc import Callable, Mapping, Sequence

from services.runtime import logs
from services.scheduler.core.model import Node
from services.scheduler.launchers.kubernetes.api import Api, Object
from services.scheduler.launchers.kubernetes.cache import Cache
from services.scheduler.launchers.kubernetes.cluster import NodeRules
from services.scheduler.launchers.kubernetes.nodes import is_ready, read_node

log = logs.get()


class KubernetesNodes:
    """The nodes that match `selector`, a label selector."""

    gone = "the node is gone from the cluster"

    def __init__(self, api: Api, rules: NodeRules, selector: str = "") -> None:
        self._rules = rules
        self._selector = selector
        query: Mapping[str, str] = {"labelSelector": selector} if selector else {}
        self._cache = Cache(api, "/api/v1/nodes", query, self._on_change)
        self._nodes: dict[str, Node] = {}
        self._wake: Callable[[], None] = lambda: None

    async def nodes(self) -> Sequence[Node]:
        """Raises LauncherUnavailable."""
        await self._cache.current()
        return tuple(node for _, node in sorted(self._nodes.items()))

    def mask(self) -> None:
        return None

    async def watch(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        await self._cache.run()

    def why_unreachable(self, name: str) -> str:
        """Why nothing is known of the pods on this node; empty while it is well, or not watched."""
        found = self._cache.objects.get(name)
        if not self._cache.is_current or (found is not None and is_ready(found)):
            return ""
        if found is None and self._selector:
            return (
                ""  # it may have lost the label only; the cluster removes the pods of a lost node
            )
        what = "is no longer in the cluster" if found is None else "is not ready"
        return (
            f"node {name} {what}: its devices are held until its pods are gone; if the machine is "
            "off, delete the node or give it the taint node.kubernetes.io/out-of-service"
        )

    def _on_change(self, item: Object, is_gone: bool) -> None:
        name = item["metadata"]["name"]
        before = self._nodes.get(name)
        try:
            now = None if is_gone else read_node(item, self._rules)
        except ValueError as error:
            now = None
            log.error("node cannot be read and is left out", node_id=name, error=str(error))
        if now == before:
            return
        if now is None:
            del self._nodes[name]
        else:
            self._nodes[name] = now
        self._wake()
