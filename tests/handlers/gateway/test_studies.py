"""Studies as they are shown: refused ones, running ones, and those with more trials than a page."""

from typing import Any

import pytest

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, study_id_for
from drivetrain_schemas.studies import (
    StudyCancel,
    StudyCancelled,
    StudyCancelling,
    StudyCancelRejected,
    StudyFailed,
    StudyRequestRejected,
    StudySpec,
    StudySubmit,
)
from services.gateway import commands
from tests.conftest import OpenDatabase
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.story import TENANT, Story, search, spec

SPEC = StudySpec.model_validate(
    {
        "name": "asked",
        "job": spec("trial").model_dump(mode="json"),
        "space": {"learning_rate": {"type": "uniform", "low": 0.001, "high": 0.3}},
        "max_trials": 4,
    }
)


def refusal(story: Story) -> tuple[Event[Any], Event[Any]]:
    """A request and the search's no to it."""
    study_id = study_id_for(TENANT, "asked")
    submit = StudySubmit(request_id="asked", spec=SPEC, study_id=study_id)
    rejected = StudyRequestRejected(
        study_id=study_id,
        request_id="asked",
        command_event_id="cmd-1",
        reason="invalid_spec",
        detail="the jobs of its trials would not be valid",
    )
    return Event("cmd-1", "/other", story.now, TENANT, submit), story.tell(rejected)


async def test_a_refused_study_is_listed_and_shown_as_rejected_whichever_comes_first(
    model: Model, database: OpenDatabase
) -> None:
    submitted, rejected = refusal(Story())
    other = Model(await database("gateway"))
    await model.tell(submitted, rejected)
    await other.tell(rejected, submitted)
    for one in (model, other):
        async with serving(one) as server:
            (listed,) = (await server.client.get("/v1/studies")).json()["studies"]
            shown = (await server.client.get(f"/v1/studies/{listed['study_id']}")).json()
            pages = [
                (await server.client.get(path)).text
                for path in ("/studies", f"/studies/{listed['study_id']}")
            ]
        assert (listed["state"], shown["state"]) == ("rejected", "rejected")
        assert (shown["name"], shown["refusal"]["reason"]) == ("asked", "invalid_spec")
        assert all("rejected" in page for page in pages)
        assert not any("trials</" in page or "is proposed yet" in page for page in pages)


async def test_a_study_that_is_running_is_listed_with_its_best(model: Model) -> None:
    story = Story()
    study_id = search(story)
    await model.tell(*story.events)
    async with serving(model) as server:
        (listed,) = (await server.client.get("/v1/studies")).json()["studies"]
        shown = (await server.client.get(f"/v1/studies/{study_id}")).json()
    assert (listed["best_number"], listed["best_value"]) == (4, shown["trials"][0]["value"])


async def test_counts_ranks_and_the_best_are_right_where_the_list_of_trials_is_cut(
    model: Model,
) -> None:
    story = Story()
    study_id = search(story)
    await model.tell(*story.events)
    async with serving(model) as server:
        whole = (await server.client.get(f"/v1/studies/{study_id}")).json()
        cut = (await server.client.get(f"/v1/studies/{study_id}?max_trials=2")).json()
    assert cut.pop("trials") == whole.pop("trials")[:2]
    assert cut == whole
    assert (cut["num_proposed"], cut["num_completed"], cut["best_number"]) == (6, 5, 4)


async def test_a_request_that_was_never_sent_is_not_known_afterwards(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "MAX_EVENT_BYTES", 100)
    job = spec("asked").model_dump(mode="json", exclude_none=True)
    study = SPEC.model_dump(mode="json", exclude_none=True)
    for path, subject_id, body in (
        ("/v1/jobs", job_id_for(TENANT, "asked"), job),
        ("/v1/studies", study_id_for(TENANT, "asked"), study),
    ):
        answer = await server.client.post(path, json={"request_id": "asked", "spec": body})
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large"), answer.text
        assert (await server.client.get(f"{path}/{subject_id}")).status_code == 404


async def test_a_failed_study_says_why(model: Model) -> None:
    story = Story()
    study_id = search(story)
    failed = StudyFailed(
        study_id=study_id,
        reason="trials_refused",
        detail="there is no pool h200",
        num_completed=0,
        num_failed=10,
        finished_at=story.now,
    )
    await model.tell(*story.events, story.tell(failed))
    async with serving(model) as server:
        study = (await server.client.get(f"/v1/studies/{study_id}")).json()
        assert (study["state"], study["failure"]) == ("failed", "there is no pool h200")
        page = (await server.client.get(f"/studies/{study_id}")).text
        assert "The study failed: there is no pool h200" in page


async def test_a_study_is_cancelled_by_its_owner(model: Model) -> None:
    story = Story()
    study_id = search(story)
    await model.tell(*story.events)

    def answer(command: Event[Any]) -> list[Event[Any]]:
        assert isinstance(command.payload, StudyCancel)
        reason = command.payload.reason
        if reason == "late":
            rejected = StudyCancelRejected(
                study_id=study_id,
                command_event_id=command.event_id,
                reason="already_finished",
                detail="the study has ended",
            )
            return [story.tell(rejected)]
        return [story.tell(StudyCancelling(study_id=study_id, reason=reason))]

    async with serving(model, answer=answer) as server:
        path = f"/v1/studies/{study_id}"
        accepted = await server.client.post(f"{path}/cancel", json={"reason": "enough"})
        assert (accepted.status_code, accepted.json()) == (202, {"is_confirmed": True})
        (command,) = server.bus.commands("commands.studies")
        assert command.payload == StudyCancel(study_id=study_id, reason="enough")
        study = (await server.client.get(path)).json()
        assert (study["state"], study["is_cancelling"]) == ("running", True)
        cancelled = StudyCancelled(
            study_id=study_id,
            reason="enough",
            num_completed=5,
            num_failed=1,
            best_number=4,
            best_value=0.9,
            metric=SPEC.job.metric,
            finished_at=story.now,
        )
        await model.tell(story.tell(cancelled))
        study = (await server.client.get(path)).json()
        assert (study["state"], study["is_cancelling"]) == ("cancelled", False)
        assert "Cancelled after 6 trials: enough" in (await server.client.get(path[3:])).text
        late = await server.client.post(f"{path}/cancel", json={"reason": "late"})
        assert (late.status_code, late.json()["code"]) == (409, "already_finished")
        unknown = study_id_for(TENANT, "unknown")
        assert (await server.client.post(f"/v1/studies/{unknown}/cancel")).status_code == 404
