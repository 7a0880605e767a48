"""Queues longer than one round announces: no job is overlooked, and each gets its reason."""

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobState, WaitingReason
from services.scheduler import loop
from services.scheduler.core.model import Node
from tests.handlers.scheduler.world import World, make_submit

WHOLE = {"resources": {"devices": 4}}


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    monkeypatch.setattr(loop, "MAX_ANNOUNCED", 2)


async def submit(world: World, *request_ids: str, **spec) -> None:
    for request_id in request_ids:
        await world.submit(make_submit(request_id, **spec))


async def back_off(world: World) -> None:
    async with world.database.transaction() as tx:
        await tx.connection.execute(
            """update jobs set not_before_at = clock_timestamp() + interval '1 hour'
            where state = 'queued' and priority > 0"""
        )


async def waiting(world: World) -> dict[str, tuple[WaitingReason, int]]:
    sent = [payload for payload in await world.emitted() if payload.kind.type == "job.waiting"]
    return {payload.job_id: (payload.reason, payload.queue_position) for payload in sent}


async def state(world: World, request_id: str) -> JobState:
    return (await world.job(job_id_for("default", request_id))).state


async def test_jobs_that_back_off_do_not_hide_one_that_fits(world: World):
    early = [f"early{number}" for number in range(7)]
    await submit(world, *early, priority=5)
    await back_off(world)
    await submit(world, "fits")

    await world.rounds()

    assert await state(world, "fits") is JobState.RUNNING
    assert await waiting(world) == {
        job_id_for("default", name): (WaitingReason.BACKING_OFF, position)
        for position, name in enumerate(early, start=1)
    }


async def test_nor_one_that_waited_before(world: World):
    await submit(world, "holds", **WHOLE)
    await world.rounds()
    await submit(world, "fits")
    await world.rounds()
    await submit(world, *(f"early{number}" for number in range(7)), priority=5)
    await back_off(world)
    await world.rounds()
    assert await state(world, "fits") is JobState.QUEUED

    for pod_id in list(world.launcher.specs):
        world.launcher.end(pod_id)
    await world.rounds()

    assert await state(world, "fits") is JobState.RUNNING


async def test_jobs_that_never_fit_do_not_hide_one_that_fits(world: World):
    too_large = [f"large{number}" for number in range(5)]
    await submit(world, *too_large, **WHOLE)
    world.nodes.now = [Node("n1", "default", "cpu", 2)]
    await world.fleet.look()
    await submit(world, "fits")

    await world.rounds()

    assert await state(world, "fits") is JobState.RUNNING
    reasons = {reason for reason, _ in (await waiting(world)).values()}
    assert reasons == {WaitingReason.POOL_WITHOUT_NODES}


async def test_every_job_of_a_long_queue_gets_its_reason(world: World):
    await submit(world, "holds", **WHOLE)
    await world.rounds()
    names = [f"r{number}" for number in range(9)]
    await submit(world, *names)

    await world.rounds()

    sent = await waiting(world)
    assert [sent[job_id_for("default", name)][1] for name in names] == list(range(1, 10))


async def test_a_grant_in_front_of_a_long_queue_is_no_news_for_those_behind(world: World):
    await submit(world, "holds", **WHOLE)
    await world.rounds()
    await submit(world, *(f"r{number}" for number in range(9)), **WHOLE)
    await world.rounds()
    await world.emitted()

    for pod_id in list(world.launcher.specs):
        world.launcher.end(pod_id)
    await world.rounds()

    # The next one starts, and the one behind it now waits for the devices themselves.
    assert await state(world, "r0") is JobState.RUNNING
    assert list(await waiting(world)) == [job_id_for("default", "r1")]


async def test_the_end_of_a_backoff_is_met(world: World):
    await submit(world, *(f"r{number}" for number in range(4)), priority=5)
    await back_off(world)
    await submit(world, "last")
    async with world.database.transaction() as tx:
        await tx.connection.execute(
            """update jobs set not_before_at = clock_timestamp() + interval '9 seconds'
            where request_id = 'last'"""
        )

    await world.rounds()

    assert 0 < world.loop._next_due - world.clock.monotonic() <= 9
