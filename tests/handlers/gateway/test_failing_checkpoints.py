"""A run that trains on without saving checkpoints says so wherever its job is shown."""

import pytest

from drivetrain_schemas.checkpoints import CheckpointingFailed, CheckpointingRecovered, SaveFailure
from drivetrain_schemas.metrics import AlertKind
from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.story import TENANT, JobStory, Story
from tests.handlers.gateway.test_alerts import clears

DETAIL = "no checkpoint since step 300: the disk is full"


def failing(story: Story) -> JobStory:
    job = story.job("unsaved")
    job.starts()
    story.tell(
        CheckpointingFailed(
            tenant_id=TENANT,
            **job.run,
            reason=SaveFailure.STORE_FULL,
            detail="the disk is full",
            last_step=300,
            failed_step=400,
        )
    )
    return job


async def alerts(model: Model, job: JobStory) -> tuple[list[tuple[str, str]], str, str, str]:
    """The alerts of the job, its explanation, and the pages it is on."""
    async with serving(model) as server:
        shown = (await server.client.get(f"/v1/jobs/{job.job_id}")).json()
        explained = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
        page = (await server.client.get(f"/jobs/{job.job_id}")).text
    found = [(alert["alert"], alert["detail"]) for alert in shown["alerts"]]
    return found, explained["text"], page.partition('id="timeline"')[0], page


async def test_it_is_shown_and_explained(model: Model) -> None:
    story = Story()
    job = failing(story)
    await model.tell(*story.events)
    found, text, head, page = await alerts(model, job)
    assert found == [("no_checkpoints", DETAIL)]
    assert text == f"Attempt 1 is running; {DETAIL}"
    assert DETAIL in head
    assert "Attempt 1 has saved no checkpoint since step 300: the disk is full" in page


@pytest.mark.parametrize("end", ["recovered", "ended"])
async def test_it_is_over_with_the_next_checkpoint_or_the_run(model: Model, end: str) -> None:
    story = Story()
    job = failing(story)
    if end == "recovered":
        story.tell(CheckpointingRecovered(tenant_id=TENANT, **job.run, step=500))
    else:
        job.fails()
        clears(job, AlertKind.NO_CHECKPOINTS)
    await model.tell(*story.events)
    found, text, head, _ = await alerts(model, job)
    assert found == []
    assert DETAIL not in head + text
