"""A pass that deletes the rows of old runs."""

from functools import partial

from services.scheduler import retention
from services.scheduler.retention import KEPT_DAYS
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.scheduler.busy import SLOTS, busy_world
from tests.handlers.scheduler.world import World

NUM_PASSES = 7


async def passes(world: World, num_old: int) -> Runs:
    """Before each pass so many of the runs become older than runs are kept."""
    while True:
        async with world.database.connection() as connection:
            await connection.execute(
                """update runs set ended_at = ended_at - make_interval(days => $1)
                where run_id in (select run_id from runs where ended_at is not null
                    order by ended_at desc limit $2)""",
                KEPT_DAYS + 1,
                num_old,
            )
        yield partial(retention.prune, world.platform)


async def test_a_pass_costs_as_much_as_it_deletes(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        num_past = (NUM_PASSES + 1) * size
        world = await busy_world(database, num_live=SLOTS, num_past=num_past)
        async for work in passes(world, size):
            yield work

    (await measure(scenario, 50)).assert_linear()


async def test_runs_that_stay_cost_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        num_past = NUM_PASSES * 20 + size
        world = await busy_world(database, num_live=SLOTS, num_past=num_past)
        async for work in passes(world, 20):
            yield work

    (await measure(scenario, 500)).assert_flat()
