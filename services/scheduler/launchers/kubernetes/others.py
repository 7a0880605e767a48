"""What pods request on each node that are not of jobs: of DaemonSets, of other namespaces.

From one list and watch of the pods of all namespaces that are bound to a node and not finished; of
each, only its request is kept. Without the right to see them nothing of them is known, and pods of
jobs are placed by what nodes have.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from services.runtime import logs
from services.scheduler.core.mask import Amounts, added
from services.scheduler.launchers.base import LauncherUnavailable
from services.scheduler.launchers.kubernetes import names, requests
from services.scheduler.launchers.kubernetes.api import Api, Object, Refused
from services.scheduler.launchers.kubernetes.cache import Cache

log = logs.get()

# Room that came back counts only after this: a pod that is replaced takes it again.
HELD_SECONDS = 5.0
_RESYNC_SECONDS = 600.0  # there may be 100,000 pods
_AGAIN_SECONDS = 60.0  # after a refusal
_FIRST_SECONDS = 5.0
_BOUND = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class Requested:
    """The sums by node. A pod that goes counts for `HELD_SECONDS` more."""

    def __init__(self) -> None:
        self._sums: dict[str, Amounts] = {}
        self._pods: dict[str, tuple[str, Amounts]] = {}
        self._gone_at: dict[str, float] = {}  # by uid, in the order of these times

    def on(self, node_id: str) -> Amounts:
        return self._sums.get(node_id, {})

    def note(self, uid: str, node_id: str, request: Amounts) -> set[str]:
        """It is there. The nodes whose sum changed."""
        self._gone_at.pop(uid, None)
        if self._pods.get(uid) == (node_id, request):
            return set()
        changed = self._drop(uid) | {node_id}
        self._pods[uid] = (node_id, request)
        self._sums[node_id] = added(self.on(node_id), request)
        return changed

    def note_gone(self, uid: str, now: float) -> None:
        if uid in self._pods:
            self._gone_at.setdefault(uid, now)

    def expire(self, now: float) -> set[str]:
        """The nodes whose sum changed."""
        changed: set[str] = set()
        while self._gone_at:
            uid, at = next(iter(self._gone_at.items()))
            if now < at + HELD_SECONDS:
                break
            del self._gone_at[uid]
            changed |= self._drop(uid)
        return changed

    def _drop(self, uid: str) -> set[str]:
        if uid not in self._pods:
            return set()
        node_id, request = self._pods.pop(uid)
        less = {name: -amount for name, amount in request.items()}
        left = {name: each for name, each in added(self.on(node_id), less).items() if each}
        if left:
            self._sums[node_id] = left
        else:
            self._sums.pop(node_id, None)
        return {node_id}


class OtherPods:
    """`on_change` is called with a node's name after a change of what is requested there."""

    def __init__(self, api: Api, platform: str) -> None:
        self.on_change: Callable[[str], None] = lambda node_id: None
        self._requested = Requested()
        query = {"fieldSelector": _BOUND, "labelSelector": f"{names.PLATFORM}!={platform}"}
        self._cache = Cache(
            api, "/api/v1/pods", query, self._on_change, trim=_trim, resync_seconds=_RESYNC_SECONDS
        )
        self._is_running = False
        self._is_forbidden = False
        self._known = asyncio.Event()

    def on(self, node_id: str) -> Amounts:
        return self._requested.on(node_id)

    async def current(self) -> None:
        """They have been listed once, or may not be; that is waited for a moment only."""
        if self._known.is_set():
            return
        with suppress(TimeoutError, LauncherUnavailable):
            async with asyncio.timeout(_FIRST_SECONDS):
                await (self._known.wait() if self._is_running else self._list())

    async def run(self) -> None:
        """Keep it current until cancelled."""
        self._is_running = True
        while True:
            try:
                await self._list()
                if not self._is_forbidden:
                    await self._cache.run()
                await asyncio.sleep(_AGAIN_SECONDS)
            except LauncherUnavailable:
                await asyncio.sleep(1.0)

    def expire(self) -> None:
        """Forget pods that have been gone for long enough."""
        for node_id in self._requested.expire(time.monotonic()):
            self.on_change(node_id)

    async def _list(self) -> None:
        try:
            await self._cache.refresh()
            self._is_forbidden = False
        except Refused as refused:
            if not self._is_forbidden:
                log.warning(
                    "pods of others cannot be seen, so what they use of nodes is not subtracted",
                    error=str(refused),
                )
            self._is_forbidden = True
        self._known.set()

    def _on_change(self, item: Object, is_gone: bool) -> None:
        uid = item["metadata"]["uid"]
        if is_gone:
            self._requested.note_gone(uid, time.monotonic())
            return
        for node_id in self._requested.note(uid, item["node"], item["request"]):
            self.on_change(node_id)


def _trim(pod: Object) -> Object:
    """What is kept of it; its name is unique in the cluster."""
    found: Mapping[str, str] = pod["metadata"]
    metadata = {
        "name": f"{found['namespace']}/{found['name']}",
        "uid": found["uid"],
        "resourceVersion": found["resourceVersion"],
    }
    try:
        request = requests.of_pod(pod["spec"])
    except ValueError as error:
        log.warning("request of a pod cannot be read", pod=metadata["name"], error=str(error))
        request = {}
    return {"metadata": metadata, "node": pod["spec"].get("nodeName") or "", "request": request}
