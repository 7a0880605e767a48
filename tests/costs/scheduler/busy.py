"""A scheduler whose slots are all held, with jobs that wait and jobs that have run."""

from itertools import islice

from services.scheduler.core.pods import Sight
from tests.conftest import OpenDatabase
from tests.costs.rows import analyze, copy_rows
from tests.events import make_event
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit

SLOTS = 2
ROWS_OF_A_JOB = {
    "jobs": ["job_id", "request_id"],
    "runs": ["job_id", "run_id"],
    "pods": ["pod_id", "run_id"],
    "allocations": ["allocation_id", "run_id", "job_id"],
    "allocation_slots": ["allocation_id"],
}


async def busy_world(
    database: OpenDatabase, *, num_live: int, num_past: int, num_waiting: int = 0
) -> World:
    """One-slot jobs on nodes of two slots; so many have run on each of the nodes."""
    nodes = [
        {"node_id": f"n{number}", "pool": "default", "device_type": "cpu", "slots": SLOTS}
        for number in range(num_live // SLOTS)
    ]
    world = await World(await database("scheduler"), FakeLauncher(), nodes=nodes).register()
    await submit(world, "past", num_live)
    end(world, num_live)
    await world.rounds()
    await copy_rows(world.database, ROWS_OF_A_JOB, num_past // SLOTS)
    await submit(world, "live", num_live + num_waiting)
    await analyze(world.database)
    return world


async def submit(world: World, name: str, number: int) -> None:
    jobs = [make_event(make_submit(f"{name}{each}")) for each in range(number)]
    async with world.database.transaction() as tx:
        await world.commands.on_batch(tx, jobs)
    await world.rounds(limit=20 + number)


def end(world: World, number: int = 1) -> None:
    """The pods of so many runs have ended."""
    sights = world.launcher.sights.items()
    alive = (pod for pod, seen in sights if seen.sight is Sight.ALIVE)
    for pod_id in list(islice(alive, number)):
        world.launcher.end(pod_id)
