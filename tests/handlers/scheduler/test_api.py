"""The position of a job in the queue, on request."""

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from drivetrain_schemas.ids import job_id_for, pod_id_for
from services.scheduler.api import read_api
from tests.handlers.scheduler.world import World, make_submit

WHOLE = {"resources": {"devices": 4}}
JOBS = [job_id_for("default", f"r{number}") for number in range(4)]


@pytest_asyncio.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=read_api(world.loop))
    async with httpx.AsyncClient(transport=transport, base_url="http://scheduler") as client:
        yield client


async def place(client: httpx.AsyncClient, job_id: str) -> tuple[int, str, list]:
    answer = (await client.get(f"/queue/{job_id}")).json()
    holders = [(holder["job_id"], holder["num_slots"]) for holder in answer["holders"]]
    return answer["queue_position"], answer["reason"], holders


async def test_a_place_moves_up_without_an_event(world: World, client: httpx.AsyncClient):
    await world.submit(*(make_submit(f"r{number}", **WHOLE) for number in range(4)))
    await world.rounds()
    assert await place(client, JOBS[1]) == (1, "no_free_devices", [(JOBS[0], 4)])
    assert await place(client, JOBS[3]) == (3, "behind_earlier_submission", [(JOBS[0], 4)])
    await world.emitted()

    for index in (0, 1):
        world.launcher.end(pod_id_for(JOBS[0], 1, index))
    await world.rounds()

    assert await place(client, JOBS[3]) == (2, "behind_earlier_submission", [(JOBS[1], 4)])
    sent = await world.emitted()
    assert [it.job_id for it in sent if it.kind.type == "job.waiting"] == [JOBS[2]]


async def test_jobs_of_other_tenants_are_not_named(world: World, client: httpx.AsyncClient):
    await world.submit(make_submit("r0", **WHOLE))
    await world.rounds()
    await world.submit(make_submit("r1", **WHOLE))
    theirs = job_id_for("vision", "r0")
    other = make_submit("r0", **WHOLE).model_copy(update={"job_id": theirs})
    await world.submit(other, tenant_id="vision")
    await world.rounds()

    answer = (await client.get(f"/queue/{theirs}")).json()
    assert (answer["queue_position"], answer["holders"]) == (2, [])
    assert answer["detail"] == "another tenant's job was submitted earlier and waits for devices"
    sent = [it for it in await world.emitted() if it.kind.type == "job.waiting"]
    assert [(it.job_id, len(it.holders)) for it in sent] == [(JOBS[1], 1), (theirs, 0)]
    assert "job_" not in sent[1].detail


async def test_a_job_that_does_not_wait_has_no_place(world: World, client: httpx.AsyncClient):
    assert (await client.get(f"/queue/{JOBS[0]}")).status_code == 503
    await world.submit(make_submit("r0"))
    await world.rounds()

    assert (await client.get(f"/queue/{JOBS[0]}")).status_code == 404
    assert (await client.get(f"/queue/{JOBS[1]}")).status_code == 404
