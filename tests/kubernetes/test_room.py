"""Jobs on nodes that they share with pods of others, by the scheduler's loop on a real API server.

The cluster's own scheduler and controllers place the others' pods; kwok makes all of them run.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobState, WaitingReason
from services.runtime.clock import SystemClock
from services.scheduler.core.reasons import Position, position_of
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import World, make_submit
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import (
    CLUSTER_RULES,
    NODE_RULES,
    Cluster,
    running,
    scheduler_kubeconfig,
)

OTHERS = "/api/v1/namespaces/default/pods"


class Shared:
    """A scheduler whose launcher and nodes are the cluster's."""

    def __init__(self, cluster: Cluster, world: World) -> None:
        self.cluster = cluster
        self.world = world

    def filler(self, node: str, cpu: str) -> str:
        """A pod of another namespace, on this node."""
        container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": cpu}}}
        pod = {"metadata": {"name": f"on-{node}"}, "spec": {"containers": [container]}}
        pod["spec"]["nodeName"] = node
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]
        self.cluster.control_plane.post(OTHERS, pod)
        return f"{OTHERS}/on-{node}"

    def delete(self, path: str) -> None:
        body = {"gracePeriodSeconds": 1}
        self.cluster.control_plane.http.request("DELETE", path, json=body).raise_for_status()

    async def submit(self, name: str, devices: int) -> str:
        job_id = job_id_for("default", name)
        facts = {"resources": {"devices": devices}, "retries": {"backoff_seconds": 0}}
        await self.world.submit(make_submit(name, **facts))
        return job_id

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
        """Rounds of the loop, until this is so."""
        try:
            async with asyncio.timeout(seconds):
                while not await condition():
                    await self.world.fleet.look()
                    self.world.loop.wake()
                    await self.world.loop.round(self.world.platform)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(self._as_it_stands()) from None

    def _as_it_stands(self) -> str:
        state = self.world.loop.state
        live = [] if state is None else list(state.live_runs.values())
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        pods = self.cluster.control_plane.get(path).json()["items"]
        shown = self.world.loop.shown
        waiting = () if shown is None else shown[1].waiting
        statuses = [(each["metadata"]["name"], each["status"]) for each in pods]
        return f"live: {live}; waiting: {waiting}; pods: {statuses}"

    async def until_runs(self, job_id: str) -> list[str]:
        """On which nodes it runs."""

        async def is_running() -> bool:
            job = await self.world.job(job_id)
            return job is not None and job.state is JobState.RUNNING

        await self.until(is_running)
        live = self.world.loop.state.live_runs[job_id]
        return [pod.node_id for pod in live.pods]

    async def until_waits(self, job_id: str, words: str) -> Position:
        async def is_told() -> bool:
            return words in self.explained(job_id).detail

        await self.until(is_told)
        return self.explained(job_id)

    def explained(self, job_id: str) -> Position:
        """As `drivetrain job explain` asks it."""
        if self.world.loop.shown is None or job_id not in self.world.loop.shown[0].jobs:
            return Position(0, None, "", ())
        state, decision = self.world.loop.shown
        return position_of(state.jobs[job_id].queued, state.snapshot, decision.waiting)

    async def num_held(self) -> int:
        async with self.world.database.connection() as connection:
            found: int = await connection.fetchval(
                "select count(*) from allocation_slots where released_at is null"
            )
        return found

    async def until_ready(self, *names: str) -> None:
        async def are_open() -> bool:
            state = self.world.loop.state
            nodes = {} if state is None else state.snapshot.occupancy.by_id
            return all(name in nodes and nodes[name].is_schedulable for name in names)

        await self.until(are_open)

    async def until_used(self, node: str, cpu: int) -> None:
        """So many thousandths of a CPU are requested by others, as the scheduler knows it."""

        async def is_known() -> bool:
            room = self.world.nodes.mask().rooms.get(node)
            return room is not None and room.others.get("cpu", 0) == cpu

        await self.until(is_known)


async def opened(cluster: Cluster, database: OpenDatabase) -> AsyncIterator[Shared]:
    launcher, nodes = await cluster.launcher(node_selector=f"test={cluster.namespace}")
    world = World(await database("scheduler"), launcher, nodes=[])
    world.clock = SystemClock()
    world.platform = replace(world.platform, clock=world.clock)
    world.nodes = nodes
    world.restart()
    async with running(launcher.watch(lambda: None), nodes.watch(lambda: None)):
        yield Shared(cluster, world)
    for item in cluster.control_plane.get(OTHERS).json()["items"]:
        if cluster.namespace in (name := item["metadata"]["name"]):
            cluster.control_plane.http.delete(f"{OTHERS}/{name}")
    await cluster.close()


@pytest.fixture
async def shared(
    control_plane: ControlPlane,
    namespace: str,
    database: OpenDatabase,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Shared]:
    rules: Any = getattr(request, "param", CLUSTER_RULES)
    kubeconfig = scheduler_kubeconfig(control_plane, namespace, rules)
    async for each in opened(Cluster(control_plane, namespace, kubeconfig, tmp_path), database):
        yield each


async def test_a_job_goes_where_pods_of_others_leave_room(shared: Shared) -> None:
    full, free = shared.cluster.kwok_node("a", "2"), shared.cluster.kwok_node("b", "4")
    await shared.until_ready(full, free)
    shared.filler(full, "1500m")
    await shared.until_used(full, 1500)
    assert await shared.until_runs(await shared.submit("two", 2)) == [free]


async def test_a_daemon_on_the_only_node_leaves_room_for_one_slot_of_two(shared: Shared) -> None:
    node = shared.cluster.kwok_node("a", "2")
    await shared.until_ready(node)
    labels = {"daemon": shared.cluster.namespace}
    container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": "100m"}}}
    selector = {"test": shared.cluster.namespace}
    template = {"containers": [container], "nodeSelector": selector}
    daemons = f"/apis/apps/v1/namespaces/{shared.cluster.namespace}/daemonsets"
    shared.cluster.control_plane.post(
        daemons,
        {
            "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template},
            },
        },
    )
    await shared.until_used(node, 100)
    two = await shared.submit("two", 2)
    told = await shared.until_waits(
        two, "1.9 of 2 CPUs are free for jobs (other pods request 100m)"
    )
    assert told.reason is WaitingReason.NO_ROOM
    assert await shared.until_runs(await shared.submit("one", 1)) == [node]
    shared.delete(f"{daemons}/agent")


async def test_on_a_full_cluster_a_job_waits_without_a_slot_until_room_comes_back(
    shared: Shared,
) -> None:
    node = shared.cluster.kwok_node("a", "2")
    await shared.until_ready(node)
    filler = shared.filler(node, "2")
    await shared.until_used(node, 2000)
    job_id = await shared.submit("two", 2)
    await shared.until_waits(job_id, f"node {node}: 0 of 2 CPUs are free for jobs")
    assert await shared.num_held() == 0
    shared.delete(filler)
    assert await shared.until_runs(job_id) == [node]


@pytest.mark.parametrize("shared", [NODE_RULES], indirect=True)
async def test_without_the_right_to_see_pods_the_second_attempt_goes_elsewhere(
    shared: Shared,
) -> None:
    with structlog.testing.capture_logs() as logs:
        full, free = shared.cluster.kwok_node("a", "2"), shared.cluster.kwok_node("b", "4")
        await shared.until_ready(full, free)
        shared.filler(full, "1500m")
        job_id = await shared.submit("two", 2)
        await shared.until_waits(job_id, "")
        assert await shared.until_runs(job_id) == [free]
    job = await shared.world.job(job_id)
    assert job.num_runs == 2
    told = [each["event"] for each in logs]
    assert told.count("a pod did not fit") == 1
    assert sum("cannot be seen" in each for each in told) == 1
    other = await shared.submit("again", 2)
    assert await shared.until_runs(other) == [free]
