"""The nodes of the cluster as the scheduler's nodes, from a list and a watch, and what is left of
each for pods of jobs."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from services.runtime import logs
from services.scheduler.core.mask import Mask, NodeRoom
from services.scheduler.core.model import Node
from services.scheduler.launchers.kubernetes import requests
from services.scheduler.launchers.kubernetes.api import Api, Object
from services.scheduler.launchers.kubernetes.cache import Cache
from services.scheduler.launchers.kubernetes.cluster import NodeRules
from services.scheduler.launchers.kubernetes.misfits import Misfits, Rejected, rejected
from services.scheduler.launchers.kubernetes.nodes import is_ready, read_node, with_kept_words
from services.scheduler.launchers.kubernetes.others import OtherPods

log = logs.get()

# What is left of nodes changes with every pod of the cluster; the scheduler looks no more often.
ROOM_SECONDS = 1.0


class KubernetesNodes:
    """The nodes that match `selector`, a label selector. Without `others` nothing is known of other
    pods."""

    gone = "the node is gone from the cluster"

    def __init__(
        self, api: Api, rules: NodeRules, selector: str = "", others: OtherPods | None = None
    ) -> None:
        self._rules = rules
        self._selector = selector
        query: Mapping[str, str] = {"labelSelector": selector} if selector else {}
        self._cache = Cache(api, "/api/v1/nodes", query, self._on_change)
        self._nodes: dict[str, Node] = {}
        self._others = others
        if others is not None:
            others.on_change = self._on_change_of_room
        self._misfits = Misfits()
        self._requests = requests.of_jobs(rules)
        self._rooms: dict[str, NodeRoom] = {}
        self._mask: Mask | None = None  # None: to be made
        self._wake: Callable[[], None] = lambda: None

    async def nodes(self) -> Sequence[Node]:
        """Raises LauncherUnavailable."""
        if self._others is not None:
            await self._others.current()
        await self._cache.current()
        return tuple(node for _, node in sorted(self._nodes.items()))

    def mask(self) -> Mask:
        if self._mask is None:
            self._mask = Mask(dict(self._rooms), *self._requests)
        return self._mask

    async def watch(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            group.create_task(self._follow_room())
            if self._others is not None:
                group.create_task(self._others.run())

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

    def note_pod(self, pod: Object) -> None:
        """One of a job, as it is now: whether it fitted on its node."""
        uid = pod["metadata"]["uid"]
        found = rejected(pod)
        if found is not None:
            self._note_rejected(uid, found)
        elif (node_id := pod["spec"].get("nodeName")) and self._misfits.note_placed(uid, node_id):
            self._put_room(node_id, self._rooms.get(node_id))

    def _note_rejected(self, uid: str, found: Rejected) -> None:
        room = self._rooms.get(found.node_id)
        if room is not None and self._misfits.note(uid, found, room, time.monotonic()):
            log.warning("a pod did not fit", node_id=found.node_id, why=found.words)
            self._put_room(found.node_id, room)

    async def _follow_room(self) -> None:
        """Wake for what changed of it, and end what is kept for a time only."""
        while True:
            await asyncio.sleep(ROOM_SECONDS)
            if self._others is not None:
                self._others.expire()
            for node_id in self._misfits.expire(time.monotonic()):
                self._put_room(node_id, self._rooms.get(node_id))
            if self._mask is None:
                self._wake()

    def _on_change_of_room(self, node_id: str) -> None:
        if (room := self._rooms.get(node_id)) is not None and self._others is not None:
            now = replace(room, others=self._others.on(node_id))
            self._misfits.note_room(node_id, now)
            self._put_room(node_id, now)

    def _put_room(self, node_id: str, room: NodeRoom | None) -> None:
        if room is not None:
            room = replace(room, misfit=self._misfits.on(node_id, time.monotonic()))
        if room == self._rooms.get(node_id):
            return
        if room is None:
            del self._rooms[node_id]
        else:
            self._rooms[node_id] = room
        self._mask = None

    def _on_change(self, item: Object, is_gone: bool) -> None:
        name = item["metadata"]["name"]
        before = self._nodes.get(name)
        room = None
        try:
            now = None if is_gone else read_node(item, self._rules)
            if now is not None:
                now = with_kept_words(now, before)
                has = requests.amounts((item.get("status") or {}).get("allocatable") or {})
                others = {} if self._others is None else self._others.on(name)
                room = NodeRoom(has, others)
                self._misfits.note_room(name, room)
        except ValueError as error:
            now = None
            log.error("node cannot be read and is left out", node_id=name, error=str(error))
        self._put_room(name, room)
        if now == before:
            return
        if now is None:
            del self._nodes[name]
        else:
            self._nodes[name] = now
        self._wake()
