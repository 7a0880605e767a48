"""The launcher's state of the cluster stays true: watches are cut, expire, and go on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.scheduler import instruments
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import LauncherUnavailable
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.cuttable_proxy import CuttableProxy, cuttable_proxy
from tests.kubernetes.launching import Cluster, observed, pod_spec, running, terminated


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[CuttableProxy]:
    async with cuttable_proxy(control_plane.port) as made:
        yield made


@pytest.fixture
async def cluster(
    control_plane: ControlPlane, namespace: str, proxy: CuttableProxy, tmp_path: Path
) -> AsyncIterator[Cluster]:
    """Reached through the proxy by the launcher, and directly by the test."""
    kubeconfig = control_plane.kubeconfig_through(proxy.port, f"by-proxy-{namespace}")
    made = Cluster(control_plane, namespace, kubeconfig, tmp_path)
    yield made
    await made.close()


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.05)


def patch_node(cluster: Cluster, name: str, spec: dict) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    path = f"/api/v1/nodes/{name}"
    cluster.control_plane.http.patch(path, json={"spec": spec}, headers=headers).raise_for_status()


async def test_nodes_that_come_close_and_go_are_reported_at_once(cluster: Cluster) -> None:
    _, nodes = await cluster.launcher()
    woken = asyncio.Event()

    async def found(name: str, **facts) -> None:
        """From the watch: `nodes` is called only after it woke us."""
        async with asyncio.timeout(30):
            while True:
                known = {node.node_id: node for node in await nodes.nodes()}
                node = known.get(name)
                if (node is None) == (not facts) and all(
                    getattr(node, key) == value for key, value in facts.items()
                ):
                    return
                await woken.wait()
                woken.clear()

    async with running(nodes.watch(woken.set)):
        await nodes.nodes()
        name = cluster.kwok_node("a", **{"drivetrain.dev/pool": "big"})
        await found(name, pool="big", device_type="cpu", num_slots=8, unschedulable="")
        patch_node(cluster, name, {"unschedulable": True})
        await found(name, unschedulable="cordoned")
        patch_node(cluster, name, {"unschedulable": False})
        await found(name, unschedulable="")
        patch = {"type": "GpuHealthy", "status": "False", "message": "XID 79"}
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        cluster.control_plane.http.patch(
            f"/api/v1/nodes/{name}/status",
            json={"status": {"conditions": [patch]}},
            headers=headers,
        ).raise_for_status()
        await found(name, unschedulable="GpuHealthy: XID 79")
        cluster.control_plane.http.delete(f"/api/v1/nodes/{name}").raise_for_status()
        await found(name)


async def test_while_the_api_server_cannot_be_reached_nothing_is_known_and_nothing_is_lost(
    cluster: Cluster, proxy: CuttableProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.scheduler.launchers.kubernetes.cache.STALE_SECONDS", 1.0)
    spec = pod_spec("cut", cluster.kwok_node("a"))
    launcher, _ = await cluster.launcher()
    async with running(launcher.watch(lambda: None)):
        await launcher.launch(spec)

        async def is_alive() -> bool:
            return (await observed(launcher, spec)).sight is Sight.ALIVE

        await until(is_alive)
        await proxy.cut()

        async def is_unknown() -> bool:
            try:
                await observed(launcher, spec)
            except LauncherUnavailable:
                return True
            return False

        await until(is_unknown)
        with pytest.raises(LauncherUnavailable):
            await launcher.launch(pod_spec("later", spec.node_id))
        cluster.set_status(spec, terminated(137))
        await proxy.mend()

        async def is_dead() -> bool:
            try:
                return (await observed(launcher, spec)).sight is Sight.DEAD
            except LauncherUnavailable:
                return False

        await until(is_dead)


async def test_a_watch_whose_version_has_expired_begins_with_a_list(
    cluster: Cluster, proxy: CuttableProxy
) -> None:
    spec = pod_spec("expired", cluster.kwok_node("a"))
    launcher, _ = await cluster.launcher()
    num_before = _num_expired()
    async with running(launcher.watch(lambda: None)):
        await launcher.launch(spec)

        async def is_alive() -> bool:
            return (await observed(launcher, spec)).sight is Sight.ALIVE

        await until(is_alive)
        await proxy.cut()

        async def is_cut() -> bool:
            return not launcher._cache.is_watching

        await until(is_cut)
        # A server that has just started has no earlier changes.
        cluster.control_plane.apiserver.kill()
        cluster.control_plane.apiserver.start()
        cluster.set_status(spec, terminated(137))
        launcher._cache._version = "1"
        await proxy.mend()

        async def is_dead() -> bool:
            try:
                return (await observed(launcher, spec)).sight is Sight.DEAD
            except LauncherUnavailable:
                return False

        await until(is_dead)

        async def has_expired() -> bool:
            return _num_expired() > num_before

        await until(has_expired)


def _num_expired() -> float:
    counter = instruments.KUBERNETES_WATCHES.labels("pods", "expired")
    return float(counter._value.get())
