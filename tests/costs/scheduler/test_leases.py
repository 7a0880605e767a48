"""Heartbeats of every pod, and which runs' leases lapse after them."""

from datetime import UTC, datetime

from drivetrain_schemas.reports import PodHeartbeat
from services.scheduler.projection import LiveRun
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.scheduler.busy import busy_world
from tests.events import make_event, make_record
from tests.handlers.scheduler.world import World


def beat(live: LiveRun) -> PodHeartbeat:
    run = live.run
    return PodHeartbeat(
        tenant_id="default",
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=run.fence,
        pod_id=live.pods[0].pod_id,
        phase="training",
        step=1,
        sent_at=datetime.now(UTC),
    )


async def passes(world: World) -> Runs:
    assert world.loop.state is not None
    live_runs = world.loop.state.live_runs.values()
    records = [make_record(make_event(beat(live))) for live in live_runs]

    async def one() -> None:
        async with world.database.transaction() as tx:
            await world.leases.on_reports(tx, records)
        world.leases.news(live.run for live in live_runs)
        world.leases.watch_runs({live.run.run_id for live in live_runs})

    while True:
        yield one


async def test_a_pass_costs_as_much_as_its_pods(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=size, num_past=40)
        async for work in passes(world):
            yield work

    (await measure(scenario, 40)).assert_linear()


async def test_pods_of_the_past_cost_nothing(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        world = await busy_world(database, num_live=8, num_past=size)
        async for work in passes(world):
            yield work

    (await measure(scenario, 200)).assert_flat()
