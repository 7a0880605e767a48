"""No statement of the scheduler reads all history: its plans on tables of 100,000 ended jobs."""

import pytest

from benchmarks.scheduler_history import plan_of, scans, work
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import FakeLauncher, World

NUM_JOBS = 100_000


@pytest.mark.heavy
async def test_no_statement_of_the_scheduler_scans_a_growing_table(database: OpenDatabase):
    world = await World(await database("scheduler"), FakeLauncher()).register()
    executed = await work(world, NUM_JOBS)
    assert len(executed) > 25

    found = {}
    async with world.database.connection() as connection:
        for statement, each in executed.items():
            if tables := list(scans(await plan_of(connection, statement, each.arguments))):
                found[statement] = tables

    assert found == {}


async def test_the_next_round_reads_only_what_changed(database: OpenDatabase):
    world = await World(await database("scheduler"), FakeLauncher()).register()
    executed = await work(world, 1000)
    executed.clear()

    world.loop.wake()
    await world.loop.round(world.platform)

    assert all("where state = " not in text and "ended_at is null" not in text for text in executed)
