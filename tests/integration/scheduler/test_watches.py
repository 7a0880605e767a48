"""A pod's end is noticed at once, on real pods and directories, by a loop that otherwise waits."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobState
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.nodes import NodesOfSettings
from services.scheduler.launchers.watches import Watches
from services.scheduler.wiring import assemble
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit
from tests.integration.scheduler.pods import make_launcher, make_pod_spec, seen

NEVER = 600.0


@asynccontextmanager
async def watched(watches):
    """The event that is set at each notice."""
    noticed = asyncio.Event()
    task = asyncio.create_task(watches(noticed.set))
    await asyncio.sleep(0)
    yield noticed
    task.cancel()
    await asyncio.wait([task])


async def test_a_loop_that_is_not_to_poll_records_the_end_of_a_pod(
    database: OpenDatabase, tmp_path
):
    world = await World(await database("scheduler"), FakeLauncher()).register()
    rarely = world.settings.model_copy(update={"poll_seconds": NEVER, "resync_seconds": NEVER})
    launcher = make_launcher(tmp_path)
    service = assemble(rarely, launcher, NodesOfSettings(rarely))
    # It ends long after the loop has come to rest.
    await world.submit(make_submit("r1", command=["sleep", "2"]))

    tasks = [asyncio.create_task(task(world.platform)) for task in service.tasks]
    try:
        async with asyncio.timeout(60):
            while (await world.job(job_id_for("default", "r1"))).state is not JobState.SUCCEEDED:
                await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for child in launcher._children:
        child.wait(10)


async def test_an_adopted_pod_is_watched_too(tmp_path):
    launcher = make_launcher(tmp_path)
    spec = make_pod_spec(["sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.02; done"])
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)

    adopting = make_launcher(tmp_path)
    async with watched(adopting.watch) as noticed, asyncio.timeout(30):
        await seen(adopting, spec, Sight.ALIVE)
        (tmp_path / "go").touch()
        await noticed.wait()
    assert (await seen(adopting, spec, Sight.ENDED)).exit.outcome == "succeeded"
    for child in launcher._children:
        child.wait(10)


def rename_into(directory, name):
    (directory / "new").touch()
    (directory / "new").rename(directory / name)


@pytest.mark.parametrize("forged", [["exit.json"], [f"file-{n}" for n in range(65)]])
async def test_a_program_of_the_pod_can_cause_one_notice_at_most(tmp_path, forged):
    hostile, other = tmp_path / "hostile", tmp_path / "other"
    hostile.mkdir()
    other.mkdir()
    watches = Watches()
    async with watched(watches.run) as noticed, asyncio.timeout(30):
        watches.add("hostile", hostile)
        for name in forged:
            rename_into(hostile, name)
        while watches._numbers["hostile"] is not None:
            await asyncio.sleep(0)
        noticed.clear()

        rename_into(hostile, "exit.json")
        watches.add("hostile", hostile)
        rename_into(hostile, "exit.json")
        # Notices come in order, so those of the hostile pod would be first.
        watches.add("other", other)
        rename_into(other, "unknown")
        while watches._watches[watches._numbers["other"]].num_other_files == 0:
            await asyncio.sleep(0)
        assert not noticed.is_set()

        rename_into(other, "exit.json")
        await noticed.wait()


async def test_a_directory_that_is_removed_is_forgotten(tmp_path):
    watches = Watches()
    async with watched(watches.run), asyncio.timeout(30):
        (tmp_path / "pod").mkdir()
        watches.add("pod", tmp_path / "pod")
        watches.add("absent", tmp_path / "absent")
        (tmp_path / "pod").rmdir()
        while watches._watches:
            await asyncio.sleep(0)
        watches.keep(())
        assert not watches._numbers
