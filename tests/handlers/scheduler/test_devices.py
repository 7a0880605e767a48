"""GPUs of one machine, shared out over virtual nodes: each is held once, however it is cut."""

import asyncpg
import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobState
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit


def gpus(node_id: str, slots: int, first_device: int = 0) -> dict:
    return {
        "node_id": node_id,
        "pool": "default",
        "device_type": "nvidia-h200",
        "slots": slots,
        "first_device": first_device,
    }


HALVES = [gpus("node-a", 2), gpus("node-b", 2, first_device=2)]
WHOLE = [gpus("node-a", 4)]


async def begin(database: Database, launcher: FakeLauncher, nodes: list[dict]) -> World:
    """The platform starts with these nodes; pods of its former life are still there."""
    return await World(database, launcher, nodes=nodes).register()


async def submit(world: World, request_id: str, devices: int) -> JobState:
    await world.submit(make_submit(request_id, resources={"devices": devices}))
    await world.rounds()
    return (await world.job(job_id_for("default", request_id))).state


def granted(launcher: FakeLauncher) -> list[int]:
    return sorted(device for spec in launcher.specs.values() for device in spec.devices)


async def test_pods_of_one_machine_get_different_devices(database: OpenDatabase):
    nodes = [gpus("n1", 2), gpus("n2", 3, first_device=2)]
    world = await begin(await database("scheduler"), FakeLauncher(), nodes)
    for number, devices in enumerate((1, 1, 2, 1)):
        await submit(world, f"r{number}", devices)

    specs = world.launcher.specs.values()
    assert [len(spec.devices) for spec in specs] == [1, 1, 2, 1]
    assert granted(world.launcher) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("before", "after"), [(HALVES, WHOLE), (WHOLE, HALVES)], ids=["joined", "split"]
)
async def test_devices_of_live_pods_are_not_granted_by_nodes_that_were_divided_again(
    database: OpenDatabase, before: list[dict], after: list[dict]
):
    opened, launcher = await database("scheduler"), FakeLauncher()
    world = await begin(opened, launcher, before)
    await submit(world, "r1", 1)
    await submit(world, "r2", 2)
    assert len(set(granted(launcher))) == 3

    world = await begin(opened, launcher, after)
    assert await submit(world, "r3", 1) is JobState.RUNNING
    assert await submit(world, "r4", 1) is JobState.QUEUED
    assert granted(launcher) == [0, 1, 2, 3]


async def test_the_devices_of_a_pod_do_not_change_with_its_node(database: OpenDatabase):
    opened, launcher = await database("scheduler"), FakeLauncher()
    world = await begin(opened, launcher, [gpus("node-b", 2, first_device=2)])
    await world.submit(make_submit(resources={"devices": 2}))
    world.loop.wake()
    await world.loop.round(world.platform)
    assert not launcher.specs

    world = await begin(opened, launcher, [gpus("node-b", 2)])
    await world.rounds()
    assert granted(launcher) == [2, 3]


async def test_the_database_refuses_a_device_that_is_held(database: OpenDatabase):
    world = await begin(await database("scheduler"), FakeLauncher(), HALVES)
    await submit(world, "r1", 2)
    async with world.database.transaction() as tx:
        with pytest.raises(asyncpg.UniqueViolationError, match="device_held"):
            await tx.connection.execute(
                """insert into allocation_slots (allocation_id, node_id, slot, device)
                select allocation_id, 'node-b', 0, device from allocation_slots limit 1"""
            )


async def test_slots_of_cpus_are_no_devices(world: World):
    await submit(world, "r1", 2)
    await submit(world, "r2", 2)
    assert granted(world.launcher) == []
