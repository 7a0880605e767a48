"""One node: registered, a heartbeat every 2 s, and a worker for each pod that is bound to it."""

import asyncio
import shutil
import signal
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.containers import Container
from tests.kubernetes.kubelet.pod_worker import TERMINAL, Node, PodWorker
from tests.kubernetes.kubelet.resources import rejection

Object = Mapping[str, Any]
LEASE_SECONDS = 2.0
STATUS_EVERY = 5  # leases
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodeAgent:
    def __init__(self, node: Node, labels: Mapping[str, str], resources: Mapping[str, str]) -> None:
        self._node = node
        self._api: Api = node.api
        self._labels = {
            "kubernetes.io/hostname": node.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **labels,
        }
        self._resources = resources
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._has_swept = False
        (node.directory / "logs").mkdir(parents=True, exist_ok=True)

    def on_pods(self, pods: Mapping[str, Object]) -> None:
        """All pods of the cluster, after each change."""
        self._sweep(pods)
        for uid, worker in self._workers.items():
            worker.update(pods.get(uid))
        bound = [pod for pod in pods.values() if pod["spec"].get("nodeName") == self._node.name]
        for pod in sorted(bound, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
            uid = pod["metadata"]["uid"]
            if uid not in self._workers:
                self._workers[uid] = PodWorker(self._node, pod, self._rejection(pod))
                self._tasks[uid] = asyncio.create_task(self._run(uid))

    def _sweep(self, pods: Mapping[str, Object]) -> None:
        """End what was deleted while no kubelet was there."""
        if self._has_swept:
            return
        self._has_swept = True
        for directory in (self._node.directory / "pods").glob("*"):
            if directory.name not in pods:
                for container in (directory / "containers").glob("*"):
                    Container(container, container / "log").signal(signal.SIGKILL)
                shutil.rmtree(directory, ignore_errors=True)

    def _rejection(self, pod: Object) -> tuple[str, str] | None:
        is_known = (self._node.directory / "pods" / pod["metadata"]["uid"]).exists()
        if is_known or pod.get("status", {}).get("phase") in TERMINAL:
            return None
        others = [worker.pod for worker in self._workers.values() if worker.is_using_resources()]
        return rejection(pod, others, self._resources)

    async def _run(self, uid: str) -> None:
        try:
            await self._workers[uid].run()
        except Exception:
            traceback.print_exc()  # goes to the log of this kubelet; the other pods go on
        finally:
            del self._workers[uid], self._tasks[uid]

    async def be_a_node(self) -> None:
        """Register, then say again and again that this node is alive."""
        await _until_done(self._register)
        count = 0
        while True:
            try:
                await self._renew_lease()
                if count % STATUS_EVERY == 0:
                    await self._send_status()
                count += 1
            except httpx.HTTPError:
                count = 0  # the server may have forgotten that this node is ready
            await asyncio.sleep(LEASE_SECONDS)

    async def _register(self) -> None:
        name = self._node.name
        content = {"metadata": {"name": name, "labels": self._labels}, "status": self._status()}
        if await self._api.post("/api/v1/nodes", content) is None:
            await self._api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": self._labels}})

    async def _send_status(self) -> None:
        await self._api.patch(f"/api/v1/nodes/{self._node.name}/status", {"status": self._status()})

    async def _renew_lease(self) -> None:
        name = self._node.name
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 8, "renewTime": now}
        if await self._api.patch(f"{LEASES}/{name}", {"spec": spec}) is None:
            await self._api.post(LEASES, {"metadata": {"name": name}, "spec": spec})

    def _status(self) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        conditions += [
            {"type": name, "status": "False", "reason": "KubeletHasSufficient"}
            for name in pressures
        ]
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        return {
            "capacity": dict(self._resources),
            "allocatable": dict(self._resources),
            "conditions": [condition | times for condition in conditions],
            "addresses": [
                {"type": "InternalIP", "address": self._node.address},
                {"type": "Hostname", "address": self._node.name},
            ],
            "nodeInfo": _node_info(),
        }


async def _until_done(action: Callable[[], Any]) -> None:
    while True:
        try:
            await action()
            return
        except httpx.HTTPError:
            await asyncio.sleep(0.5)


def _node_info() -> dict[str, str]:
    version = {"kubeletVersion": "v1.34.4", "kubeProxyVersion": "", "osImage": "test kubelet"}
    system = {"operatingSystem": "linux", "architecture": "amd64", "kernelVersion": "test"}
    ids = {"machineID": "", "systemUUID": "", "bootID": ""}
    return {**version, **system, **ids, "containerRuntimeVersion": "test://1"}
