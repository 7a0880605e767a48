"""The rounds of the loop after live runs have ended, until nothing moves any more.

Their jobs succeed, their slots go to the next jobs in the queue, and these are launched.
"""

from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.scheduler.busy import SLOTS, busy_world, end_one, submit


async def test_more_live_runs_are_looked_at_but_not_read_again(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=size, num_past=40, num_waiting=size)
        while True:
            end_one(world)
            yield world.rounds

    growth = await measure(scenario, 40)
    growth.assert_linear()
    growth.assert_flat("statements", "rows")


async def test_jobs_of_the_past_cost_a_round_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=SLOTS, num_past=size, num_waiting=20)
        while True:
            end_one(world)
            yield world.rounds

    (await measure(scenario, 500)).assert_flat()


async def test_runs_that_end_together_cost_as_much_as_they_are(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=size, num_past=40)
        round_number = 0
        while True:
            await submit(world, f"next{round_number}-", size)
            for _ in range(size):
                end_one(world)
            yield world.rounds
            round_number += 1

    (await measure(scenario, 50)).assert_linear()
