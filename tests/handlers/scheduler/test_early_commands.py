"""Cancels that come before the request for their job."""

from datetime import timedelta

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobCancel, JobState, RejectionReason
from services.scheduler import early_commands
from services.scheduler.instruments import EARLY_COMMANDS
from tests.events import handle, make_event
from tests.handlers.scheduler.world import World, make_submit

JOB = job_id_for("default", "r1")


async def expire(world: World, age: timedelta = timedelta(0)) -> list:
    await world.emitted()
    async with world.database.transaction() as tx:
        await early_commands.expire_once(tx, age)
    return await world.emitted()


async def test_it_is_applied_when_the_job_comes(world: World):
    event = make_event(JobCancel(job_id=JOB, reason="too early"))
    assert await handle(world.database, world.commands.handlers, event) == []

    sent = await world.submit(make_submit())

    assert [payload.kind.type for payload in sent] == [
        "job.queued",
        "job.cancelling",
        "job.cancelled",
    ]
    assert sent[1].reason == sent[2].reason == "too early"
    assert (await world.job(JOB)).state is JobState.CANCELLED
    assert await expire(world) == []


async def test_the_round_after_it_grants_nothing(world: World):
    await world.cancel(JOB)
    await world.submit(make_submit())

    await world.rounds()

    assert world.launcher.launches == []


async def test_it_is_refused_when_no_job_comes_in_time(world: World):
    event = make_event(JobCancel(job_id=JOB))
    await handle(world.database, world.commands.handlers, event)
    assert await expire(world, early_commands.KEPT) == []

    (rejected,) = await expire(world)

    assert rejected.reason is RejectionReason.NO_SUCH_JOB
    assert rejected.command_event_id == event.event_id
    assert await expire(world) == []
    await world.submit(make_submit())
    assert (await world.job(JOB)).state is JobState.QUEUED


async def test_another_tenant_cannot_cancel_a_job_before_it_comes(world: World):
    stranger = make_event(JobCancel(job_id=JOB), tenant_id="stranger")
    await handle(world.database, world.commands.handlers, stranger)

    queued, rejected = await world.submit(make_submit())

    assert queued.kind.type == "job.queued"
    assert rejected.reason is RejectionReason.NO_SUCH_JOB
    assert (await world.job(JOB)).wish is None


async def test_their_number_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(early_commands, "MAX_KEPT", 2)
    before = EARLY_COMMANDS.labels("too_many")._value.get()
    ids = [job_id_for("default", f"r{number}") for number in range(3)]

    answers = [await world.cancel(job_id) for job_id in ids]

    assert [len(answer) for answer in answers] == [0, 0, 1]
    assert answers[2][0].reason is RejectionReason.NO_SUCH_JOB
    assert EARLY_COMMANDS.labels("too_many")._value.get() == before + 1


async def test_one_tenant_cannot_take_the_places_of_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(early_commands, "MAX_KEPT_OF_TENANT", 2)
    ids = [job_id_for("default", f"r{number}") for number in range(3)]

    assert [len(await world.cancel(job_id)) for job_id in ids] == [0, 0, 1]
    other = make_event(JobCancel(job_id=job_id_for("other", "r1"), reason=""), tenant_id="other")
    assert await handle(world.database, world.commands.handlers, other) == []


async def test_two_of_one_job_cancel_it_once(world: World):
    await world.cancel(JOB)
    await world.cancel(JOB)

    sent = await world.submit(make_submit())

    assert [payload.kind.type for payload in sent] == [
        "job.queued",
        "job.cancelling",
        "job.cancelled",
        "job_request.rejected",
    ]
    assert sent[3].reason is RejectionReason.ALREADY_FINISHED
