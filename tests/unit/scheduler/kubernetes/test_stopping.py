"""Ending pods where the API server, or a node, does not go along."""

import asyncio
from typing import Any

import pytest

from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import LauncherUnavailable, LaunchRefused, PodRef
from services.scheduler.launchers.kubernetes import launcher as module
from services.scheduler.launchers.kubernetes import names
from services.scheduler.launchers.kubernetes.api import Refused
from services.scheduler.launchers.kubernetes.cluster import NodeRules
from services.scheduler.launchers.kubernetes.launcher import KubernetesLauncher
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from tests.unit.scheduler.kubernetes.objects import RULES, container, made, node, pod_spec

SPECS = [pod_spec(pod_index=index) for index in (0, 1)]
NAMES = [names.pod_name(spec.pod_id) for spec in SPECS]
REFS = [PodRef(spec.job_id, spec.attempt, spec.pod_id) for spec in SPECS]


class Server:
    """An API server with these pods and nodes; its watches stay open and silent."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        running = {"phase": "Running", "containerStatuses": [container(running={})]}
        self.pods = {names.pod_name(spec.pod_id): made(spec, **running) for spec in SPECS}
        for pod in self.pods.values():
            pod["spec"]["nodeName"] = "n1"
        self.nodes = list(nodes)
        self.locked: set[str] = set()

    async def list(self, path: str, query: object) -> tuple[list[dict[str, Any]], str]:
        return (self.nodes if path.endswith("nodes") else list(self.pods.values())), "9"

    async def watch(self, path: str, query: object, version: str, seconds: int) -> Any:
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
        await asyncio.get_running_loop().create_future()

    async def create(self, path: str, manifest: object) -> None:
        raise Refused(409, {"reason": "AlreadyExists", "message": "it exists"})

    async def get(self, path: str) -> dict[str, Any] | None:
        return self.pods.get(path.rpartition("/")[2])

    async def patch(self, path: str, patch: object) -> bool:
        name = path.rpartition("/")[2]
        if name in self.locked:
            raise Refused(403, {"message": "a webhook refuses"})
        return name in self.pods

    async def delete(self, path: str, uid: str, grace_seconds: int) -> bool:
        name = path.rpartition("/")[2]
        if name in self.pods and self.pods[name]["metadata"]["uid"] != uid:
            raise Refused(409, {"message": "the UID in the precondition is another"})
        return self.pods.pop(name, None) is not None

    async def close(self) -> None:
        pass


class NoEnds:
    async def read(self, pod: PodRef) -> None:
        return None


def make_launcher(server: Server, selector: str = "") -> tuple[KubernetesLauncher, KubernetesNodes]:
    nodes = KubernetesNodes(server, NodeRules(), selector)
    return KubernetesLauncher(server, RULES, NoEnds(), nodes), nodes


async def test_one_pod_that_cannot_be_ended_does_not_keep_the_others() -> None:
    server = Server(node())
    launcher, _ = make_launcher(server)
    await launcher.observe(REFS)
    server.locked = {names.pod_name(REFS[0].pod_id)}
    assert set(await launcher.kill(REFS)) == {REFS[1].pod_id}
    with pytest.raises(LauncherUnavailable, match="a webhook refuses"):
        await launcher.kill(REFS[:1])


async def test_a_pod_on_a_node_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its deletion is requested each time; the loop goes on meanwhile."""
    monkeypatch.setattr(module, "KILL_SECONDS", 600.0)
    server = Server(node(is_ready=False))
    launcher, nodes = make_launcher(server)
    tasks = [asyncio.create_task(each) for each in (nodes.watch(print), launcher.watch(print))]
    try:
        async with asyncio.timeout(10):
            while not nodes.why_unreachable("n1"):
                await asyncio.sleep(0)
            seen = (await launcher.observe(REFS))[REFS[0].pod_id]
            assert (seen.sight, seen.is_running) == (Sight.ALIVE, False)
            assert seen.unreachable.startswith("node n1 is not ready")
            assert await launcher.kill(REFS) == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_node_that_lost_the_label_of_the_selector_is_not_lost() -> None:
    for selector, is_lost in (("", True), ("pool=train", False)):
        _, nodes = make_launcher(Server(), selector)
        watching = asyncio.create_task(nodes.watch(print))
        async with asyncio.timeout(10):
            while not nodes._cache.is_watching:
                await asyncio.sleep(0)
        assert bool(nodes.why_unreachable("n1")) is is_lost
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_pod_of_another_platform_with_the_same_name_is_left_alone() -> None:
    """It ends our run only where our pod was refused for it: otherwise it may be ours, from before
    a change of settings, and still run."""
    server = Server(node())
    server.pods[NAMES[0]]["metadata"]["labels"][names.PLATFORM] = "another"
    launcher, _ = make_launcher(server)
    assert list(await launcher.kill(REFS)) == [REFS[1].pod_id]
    with pytest.raises(LauncherUnavailable, match="another platform"):
        await launcher.kill(REFS[:1])
    with pytest.raises(LaunchRefused, match="another platform"):
        await launcher.launch(SPECS[0])
    assert list(await launcher.kill(REFS[:1])) == [REFS[0].pod_id]
    assert list(server.pods) == NAMES[:1]


async def test_a_pod_that_took_the_place_of_the_one_known_is_not_proven_gone() -> None:
    server = Server(node())
    launcher, _ = make_launcher(server)
    await launcher.observe(REFS)
    uid = server.pods[NAMES[0]]["metadata"]["uid"]
    server.pods[NAMES[0]]["metadata"]["uid"] = "of a new pod"
    with pytest.raises(LauncherUnavailable, match="UID"):
        await launcher._delete(NAMES[0], uid, 1)
    assert NAMES[0] in server.pods


async def test_a_pod_of_no_run_is_deleted_while_nothing_else_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its creation had no answer, and came after it was called gone."""
    monkeypatch.setattr(module, "ORPHAN_SECONDS", 0.3)
    server = Server(node())
    launcher, _ = make_launcher(server)
    watching = asyncio.create_task(launcher.watch(print))
    try:
        async with asyncio.timeout(10):
            while server.pods:
                await launcher.observe(())
                await asyncio.sleep(0.01)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_pod_that_the_node_refuses_is_remembered_and_one_of_an_earlier_run_is_not() -> None:
    server = Server(node(**{"nvidia.com/gpu": "8"}))
    first, second = (server.pods[name] for name in NAMES)
    refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough cpu"}
    second["status"] = refused  # before this scheduler looked for the first time
    launcher, nodes = make_launcher(server)
    await nodes.nodes()
    await launcher.observe(REFS)
    assert nodes.mask().rooms["n1"].misfit is None
    metadata = {**first["metadata"], "resourceVersion": "2"}
    server.pods[NAMES[0]] = {**first, "metadata": metadata, "status": refused}
    await launcher.observe(REFS)
    assert "OutOfcpu: Node didn't have enough cpu" in nodes.mask().rooms["n1"].misfit.detail
