"""The rounds of the loop after live runs have ended, until nothing moves any more.

Their jobs succeed, their slots go to the next jobs in the queue, and these are launched.
"""

from functools import partial

from drivetrain_schemas.ids import job_id_for
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.scheduler.busy import SLOTS, busy_world, end, submit
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit


async def test_more_live_runs_are_looked_at_but_not_read_again(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=size, num_past=40, num_waiting=size)
        while True:
            end(world)
            yield world.rounds

    growth = await measure(scenario, 40)
    growth.assert_linear()
    growth.assert_flat("statements", "rows")


async def test_jobs_of_the_past_cost_a_round_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=SLOTS, num_past=size, num_waiting=20)
        while True:
            end(world)
            yield world.rounds

    (await measure(scenario, 500)).assert_flat()


async def test_runs_that_end_together_cost_as_much_as_they_are(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=size, num_past=40)
        round_number = 0
        while True:
            await submit(world, f"next{round_number}-", size)
            end(world, size)
            yield world.rounds
            round_number += 1

    (await measure(scenario, 50)).assert_linear()


async def test_a_gang_costs_as_much_as_its_pods(database: OpenDatabase) -> None:
    """It starts, one pod of it fails and the others are interrupted."""

    async def scenario(size: int) -> Runs:
        node = {"pool": "default", "device_type": "cpu", "slots": 1}
        nodes = [{"node_id": f"n{number}", **node} for number in range(size)]
        launcher = FakeLauncher()
        world = await World(await database("scheduler"), launcher, nodes=nodes).register()

        async def run(name: str) -> None:
            await world.submit(make_submit(name, resources={"devices": size}, retries={"limit": 0}))
            await world.rounds()
            job_id = job_id_for("default", name)
            pods = [pod_id for pod_id, spec in launcher.specs.items() if spec.job_id == job_id]
            for pod_id in pods[1:]:
                launcher.end(pod_id, "interrupted")
            launcher.end(pods[0], "failed")
            await world.rounds()

        number = 0
        while True:
            yield partial(run, f"gang{number}")
            number += 1

    (await measure(scenario, 50)).assert_linear()
