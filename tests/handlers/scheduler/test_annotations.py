"""Tags, note and project of a job, changed after its submission."""

import pytest

from drivetrain_schemas.annotations import MAX_TAGS, JobAnnotate
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobCancel, JobState
from tests.events import handle, make_event
from tests.handlers.scheduler.world import World, make_submit

JOB = job_id_for("default", "r1")


async def send(world: World, tenant_id: str = "default", **changes) -> list:
    await world.emitted()
    event = make_event(JobAnnotate(job_id=JOB, **changes), tenant_id=tenant_id)
    return await handle(
        world.database, world.commands.handlers, event, refusals=world.commands.refusals
    )


async def test_an_annotation_begins_with_the_spec_and_replaces_what_is_said(world: World):
    await world.submit(make_submit(tags=("nightly", "old"), project="digits"))

    (first,) = await send(world, add_tags=("best",), remove_tags=("old",), note="Good.\nKeep it.")
    assert (first.tags, first.note, first.project) == (
        ("nightly", "best"),
        "Good.\nKeep it.",
        "digits",
    )
    (second,) = await send(world, project="")
    assert (second.tags, second.note, second.project) == (first.tags, first.note, None)
    assert await send(world, add_tags=("best",), note="Good.\nKeep it.") == []
    (third,) = await send(world, note="", project="other")
    assert (third.tags, third.note, third.project) == (first.tags, "", "other")


async def test_a_job_that_ended_is_annotated_and_does_not_run_again(world: World):
    await world.submit(make_submit())
    cancel = make_event(JobCancel(job_id=JOB))
    await handle(world.database, world.commands.handlers, cancel)

    (annotated,) = await send(world, note="never started")

    assert annotated.note == "never started"
    assert (await world.job(JOB)).state is JobState.CANCELLED


@pytest.mark.parametrize("tenant_id", ["default", "other"])
async def test_only_a_job_of_the_tenant_is_annotated(world: World, tenant_id: str):
    if tenant_id == "other":
        await world.submit(make_submit())

    (rejected,) = await send(world, tenant_id, note="mine")

    assert (rejected.kind.type, rejected.reason) == ("job_request.rejected", "no_such_job")


async def test_more_tags_than_are_kept_are_refused(world: World):
    await world.submit(make_submit(tags=tuple(f"t{n}" for n in range(MAX_TAGS))))

    (rejected,) = await send(world, add_tags=("one-more",))
    assert (rejected.reason, rejected.errors[0].field) == ("invalid_spec", "add_tags")
    (annotated,) = await send(world, add_tags=("one-more",), remove_tags=("t0",))
    assert len(annotated.tags) == MAX_TAGS
