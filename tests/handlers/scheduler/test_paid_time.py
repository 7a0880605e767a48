"""The paid time in a release, with pods that end while the scheduler is not running."""

from datetime import UTC, datetime, timedelta

from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.ids import job_id_for, pod_id_for
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import Observation
from services.scheduler.sightings import Sightings
from tests.handlers.scheduler.world import World, make_submit, start

JOB = job_id_for("default", "r1")
POD = pod_id_for(JOB, 1, 0)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


async def released(world: World) -> AllocationReleased:
    await world.rounds()
    (event,) = [it for it in await world.emitted() if isinstance(it, AllocationReleased)]
    return event


async def backdate(world: World, seconds: float) -> datetime:
    """All of this happened so much earlier. Returns when the run was granted."""
    async with world.database.transaction() as tx:
        for column in ("runs.granted_at", "runs.started_at", "allocations.granted_at"):
            table, name = column.split(".")
            await tx.connection.execute(
                f"update {table} set {name} = {name} - make_interval(secs => $1)", float(seconds)
            )
        await tx.connection.execute(
            "update sightings set seen_at = seen_at - make_interval(secs => $1)", float(seconds)
        )
        moment: datetime = await tx.connection.fetchval("select granted_at from allocations")
    return moment


async def sightings(world: World) -> list[str]:
    async with world.database.connection() as connection:
        return [row["pod_id"] for row in await connection.fetch("select * from sightings")]


async def test_the_platform_s_outage_is_not_the_owner_s(world: World):
    await start(world)
    await Sightings(world.pods).store(world.platform)
    granted_at = await backdate(world, 3600)
    own_end = granted_at + timedelta(minutes=10)
    world.launcher.end(POD, ended_at=own_end)
    world.restart()

    event = await released(world)

    assert event.paid_ends_at == own_end
    assert event.released_at - own_end > timedelta(minutes=45)
    assert await sightings(world) == []


async def test_a_forged_end_gains_nothing_while_the_scheduler_looks(world: World):
    await start(world)
    await backdate(world, 3600)
    await world.rounds()
    world.launcher.end(POD, ended_at=EPOCH)

    event = await released(world)

    assert event.released_at - event.paid_ends_at < timedelta(seconds=30)


async def test_a_forged_end_before_the_outage_gains_nothing(world: World):
    await start(world)
    await Sightings(world.pods).store(world.platform)
    granted_at = await backdate(world, 600)
    async with world.database.transaction() as tx:
        await tx.connection.execute("update sightings set seen_at = seen_at + interval '300 s'")
    world.launcher.end(POD, ended_at=EPOCH)
    world.restart()

    event = await released(world)

    assert timedelta(seconds=299) < event.paid_ends_at - granted_at < timedelta(seconds=330)


async def test_a_dead_shim_s_processes_are_paid_ends_at_they_are_killed(world: World):
    """Otherwise a program could kill its shim during an outage of the scheduler and run free."""
    await start(world)
    await backdate(world, 3600)
    world.launcher.sights[POD] = Observation(Sight.DEAD, has_leftovers=True)
    world.restart()
    await world.rounds()
    await world.rounds()

    (event,) = [it for it in await world.emitted() if isinstance(it, AllocationReleased)]
    assert event.released_at - event.paid_ends_at < timedelta(seconds=30)


async def test_a_run_none_of_whose_pods_was_seen_is_not_paid(world: World):
    await world.submit(make_submit())
    world.loop.wake()
    await world.loop.round(world.platform)
    await world.cancel(JOB)
    await world.emitted()
    world.restart()

    event = await released(world)

    assert event.paid_ends_at == event.granted_at


async def test_sightings_only_move_forward_and_only_for_pods_of_live_runs(world: World):
    await start(world)
    sighting = Sightings(world.pods)
    await sighting.store(world.platform)
    async with world.database.connection() as connection:
        before = await connection.fetchval("select seen_at from sightings")
    world.pods._alive_at = {POD: world.clock.monotonic() - 500, "pod_other_1_0": 0.0}
    await sighting.store(world.platform)
    async with world.database.connection() as connection:
        assert await connection.fetchval("select seen_at from sightings") == before
    assert await sightings(world) == [POD]
