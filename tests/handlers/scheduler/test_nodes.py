"""Nodes that come, go, close and shrink while the scheduler runs."""

import asyncio

import pytest

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import JobState, WaitingReason
from services.scheduler.core.mask import Mask, NodeRoom, Request
from services.scheduler.core.model import Node
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import Observation
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit

JOB = job_id_for("default", "r1")
POD = pod_id_for(JOB, 1, 0)


def gpus(node_id: str, slots: int, **changes) -> Node:
    """A node of a cluster, where a device plugin chooses the devices."""
    facts = {"first_device": None, "is_spot": False, "topology": "zone-a", **changes}
    return Node(node_id, "default", "h200", slots, **facts)


@pytest.fixture
async def cluster(database: OpenDatabase) -> World:
    world = World(await database("scheduler"), FakeLauncher(), nodes=[])
    world.nodes.now = [gpus("n1", 4)]
    await world.look_at_nodes()
    return world


async def state(world: World, request_id: str) -> JobState:
    return (await world.job(job_id_for("default", request_id))).state


async def submit(world: World, request_id: str, devices: int) -> None:
    await world.submit(make_submit(request_id, resources={"devices": devices}))
    await world.rounds()


async def test_what_changes_is_published_and_nothing_else(cluster: World):
    first = gpus("n1", 4)
    steps = {
        "a second one": [first, gpus("n2", 8, is_spot=True)],
        "cordoned": [first, gpus("n2", 8, is_spot=True, unschedulable="cordoned")],
        "the same again": [first, gpus("n2", 8, is_spot=True, unschedulable="cordoned")],
        "open, with fewer devices": [first, gpus("n2", 7, is_spot=True)],
        "gone": [first],
    }
    seen = {}
    for name, cluster.nodes.now in steps.items():
        sent = await cluster.look_at_nodes()
        seen[name] = [
            each.model_dump(mode="json", exclude_none=True, exclude={"pool", "device_type"})
            for each in sent
        ]
    known = {"node_id": "n2", "num_slots": 8, "is_spot": True, "topology": "zone-a"}
    assert seen == {
        "a second one": [known],
        "cordoned": [known | {"unschedulable_reason": "cordoned"}],
        "the same again": [],
        "open, with fewer devices": [known | {"num_slots": 7}],
        "gone": [{"node_id": "n2", "reason": "the node is gone"}],
    }


async def test_a_job_that_waits_for_a_node_starts_when_it_appears(cluster: World):
    cluster.nodes.now = [gpus("n1", 4), gpus("n2", 4, unschedulable="cordoned")]
    await cluster.look_at_nodes()
    await submit(cluster, "r1", 8)
    (waiting,) = [each for each in await cluster.emitted() if each.kind.type == "job.waiting"]
    assert waiting.reason is WaitingReason.POOL_WITHOUT_NODES
    assert waiting.detail.endswith("; not counted: n2 (cordoned)")

    cluster.nodes.now = [gpus("n1", 4), gpus("n2", 4)]
    await cluster.look_at_nodes()
    assert await state(cluster, "r1") is JobState.RUNNING
    specs = cluster.launcher.specs.values()
    assert [(spec.node_id, spec.num_ranks, spec.devices) for spec in specs] == [
        ("n1", 4, ()),
        ("n2", 4, ()),
    ]


@pytest.mark.parametrize(
    "after",
    [[gpus("n1", 4, unschedulable="cordoned")], []],
    ids=["cordoned", "removed"],
)
async def test_a_closed_node_keeps_what_runs_and_gets_nothing_new(cluster: World, after):
    await submit(cluster, "r1", 2)
    cluster.nodes.now = after
    await cluster.look_at_nodes()
    await submit(cluster, "r2", 1)
    assert await state(cluster, "r1") is JobState.RUNNING
    assert len(cluster.launcher.specs) == 1

    cluster.launcher.end(POD)
    await cluster.rounds()
    assert await state(cluster, "r1") is JobState.SUCCEEDED


async def test_a_node_that_lost_devices_keeps_what_is_held_and_is_not_overfilled(cluster: World):
    await submit(cluster, "r1", 1)
    await submit(cluster, "r2", 3)
    cluster.launcher.end(POD)
    await cluster.rounds()

    cluster.nodes.now = [gpus("n1", 3)]  # of which the second job has three, slot 3 among them
    await cluster.look_at_nodes()
    await submit(cluster, "r3", 1)
    assert (await state(cluster, "r2"), await state(cluster, "r3")) == ("running", "queued")

    cluster.launcher.end(pod_id_for(job_id_for("default", "r2"), 1, 0))
    await cluster.rounds()
    assert await state(cluster, "r3") is JobState.RUNNING


async def test_pods_of_different_nodes_have_no_devices_in_common(cluster: World):
    """Their numbers are of each node's own, so two nodes may use all of theirs."""
    cluster.nodes.now = [gpus("n1", 4), gpus("n2", 4)]
    await cluster.look_at_nodes()
    await submit(cluster, "r1", 4)
    await submit(cluster, "r2", 4)
    assert {spec.node_id for spec in cluster.launcher.specs.values()} == {"n1", "n2"}


async def test_an_unavailable_source_removes_nothing(cluster: World):
    cluster.nodes.is_away = True
    assert await cluster.look_at_nodes() == []
    cluster.restart()
    await submit(cluster, "r1", 4)
    assert await state(cluster, "r1") is JobState.RUNNING


async def test_nodes_in_memory_stay_those_of_the_tables(cluster: World):
    cluster.nodes.now = [gpus("n1", 4), gpus("n-2", 1), gpus("n.3", 1, unschedulable="not ready")]
    await cluster.look_at_nodes()
    before = cluster.loop.state.snapshot.occupancy.nodes
    cluster.restart()
    await cluster.rounds()
    assert cluster.loop.state.snapshot.occupancy.nodes == before


async def test_a_notice_of_the_source_is_followed_at_once(cluster: World):
    """Not at the next resync, which is half a minute later."""
    woken = asyncio.Event()
    tasks = [
        asyncio.create_task(cluster.fleet.watch()),
        asyncio.create_task(cluster.fleet.follow(cluster.platform, woken.set)),
    ]
    try:
        while cluster.nodes.num_asked < 2:
            await asyncio.sleep(0)
        cluster.nodes.now = [gpus("n9", 1)]
        cluster.nodes.wake()
        await asyncio.wait_for(woken.wait(), 10)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [node.node_id for node in cluster.fleet.wanted] == ["n9"]


async def test_a_node_removed_while_its_pod_is_started_is_not_granted_again(cluster: World):
    cluster.launcher.sights[POD] = Observation(Sight.CREATED)
    await submit(cluster, "r1", 4)
    cluster.nodes.now = []
    await cluster.look_at_nodes()
    assert await state(cluster, "r1") is JobState.STARTING
    cluster.nodes.now = [gpus("n1", 4)]
    await cluster.look_at_nodes()
    await submit(cluster, "r2", 1)
    assert await state(cluster, "r2") is JobState.QUEUED


async def test_grant_and_release_name_the_spot_nodes_as_they_were_at_the_grant(cluster: World):
    cluster.nodes.now = [gpus("n1", 4), gpus("n2", 4, is_spot=True)]
    await cluster.look_at_nodes()
    await submit(cluster, "r1", 8)
    events = await cluster.emitted()
    cluster.nodes.now = [gpus("n1", 4), gpus("n2", 4, is_spot=False)]
    await cluster.look_at_nodes()
    for index in (0, 1):
        cluster.launcher.end(pod_id_for(JOB, 1, index))
    await cluster.rounds()
    events += await cluster.emitted()
    told = {it.kind.type: it.spot_nodes for it in events if hasattr(it, "spot_nodes")}
    assert told == {"allocation.granted": ("n2",), "allocation.released": ("n2",)}


DEVICE = Request({"gpu": 1000, "memory": 1000})


def left(**rooms: NodeRoom) -> Mask:
    return Mask(rooms, DEVICE, DEVICE)


async def test_what_others_leave_bounds_what_is_granted_and_is_no_event(cluster: World):
    has = {"gpu": 4000, "memory": 10_000_000}
    cluster.nodes.room = left(n1=NodeRoom(has, {"gpu": 3000}))
    assert await cluster.look_at_nodes() == []
    await submit(cluster, "r1", 2)
    (waiting,) = [each for each in await cluster.emitted() if each.kind.type == "job.waiting"]
    assert waiting.reason is WaitingReason.NO_ROOM
    assert "node n1: 1 of 4 gpu are free for jobs (other pods request 3)" in waiting.detail
    await submit(cluster, "small", 1)
    assert await state(cluster, "small") is JobState.RUNNING
    cluster.nodes.room = left(n1=NodeRoom(has, {"gpu": 1000}))
    assert await cluster.look_at_nodes() == []
    assert await state(cluster, "r1") is JobState.RUNNING


async def test_memory_of_jobs_is_counted_as_their_pods_request_it(cluster: World):
    cluster.nodes.room = left(n1=NodeRoom({"gpu": 4000, "memory": 1000 * 3000}))
    await cluster.look_at_nodes()
    for name in ("r1", "r2"):
        await cluster.submit(make_submit(name, resources={"devices": 1, "memory_bytes": 2000}))
        await cluster.rounds()
    assert [await state(cluster, name) for name in ("r1", "r2")] == [
        JobState.RUNNING,
        JobState.QUEUED,
    ]
    cluster.restart()
    await cluster.rounds()
    assert await state(cluster, "r2") is JobState.QUEUED
    cluster.launcher.end(POD)
    await cluster.rounds()
    assert await state(cluster, "r2") is JobState.RUNNING
