"""Commands about studies, and trials that run elsewhere, over REST."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.studies import (
    StudyChange,
    StudyChanged,
    StudyCommandRejected,
    StudyPause,
    StudyPaused,
    StudyResume,
    StudyResumed,
    StudyStop,
    StudyStopping,
)
from drivetrain_schemas.study_specs import Limits
from services.gateway import commands
from services.gateway.backends import PartRefused
from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.searches import SearchStory
from tests.handlers.gateway.story import TENANT, Story

POINT = {"learning_rate": 0.01, "width": 64, "optimizer": "adam"}


def refused(story: Story, study: SearchStory, command: Event[Any], reason: str) -> Event[Any]:
    return story.tell(
        StudyCommandRejected(
            study_id=study.study_id,
            command_event_id=command.event_id,
            command=command.type,
            reason=reason,
            detail="the study is not paused",
        )
    )


def decide(story: Story, study: SearchStory) -> Callable[[Event[Any]], Sequence[Event[Any]]]:
    """What the search says to each command."""

    def answer(command: Event[Any]) -> Sequence[Event[Any]]:
        study_id = study.study_id
        match command.payload:
            case StudyPause(reason=reason):
                return [story.tell(StudyPaused(study_id=study_id, reason=reason))]
            case StudyResume() if study.name == "idle":
                return [refused(story, study, command, "not_paused")]
            case StudyResume():
                return [story.tell(StudyResumed(study_id=study_id))]
            case StudyStop(reason=reason):
                stopping = StudyStopping(study_id=study_id, ended_by="stopped", reason=reason)
                return [story.tell(stopping)]
            case StudyChange(max_trials=max_trials):
                numbers = {"max_trials": max_trials, "max_parallel_trials": 8, "limits": Limits()}
                return [story.tell(StudyChanged(study_id=study_id, **numbers))]
        return []

    return answer


async def test_a_study_is_paused_resumed_changed_and_stopped(model: Model) -> None:
    story = Story()
    study = SearchStory(story, "search")
    study.proposes(0, POINT)
    await model.tell(*story.events)
    path = f"/v1/studies/{study.study_id}"
    async with serving(model, answer=decide(story, study)) as server:
        for verb, body, state in (
            ("pause", {"reason": "the night", "trials": "pause"}, "paused"),
            ("resume", None, "running"),
            ("change", {"max_trials": 30}, "running"),
            ("stop", {"reason": "enough"}, "stopping"),
        ):
            answer = await server.client.post(f"{path}/{verb}", json=body)
            assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True}), verb
            shown = (await server.client.get(path)).json()
            assert shown["state"] == state
        assert (shown["num_trials"], shown["state_reason"]) == (30, "enough")
        pause, _, change, _ = server.bus.commands("commands.studies")
    assert pause.payload == StudyPause(study_id=study.study_id, reason="the night", trials="pause")
    assert change.payload == StudyChange(study_id=study.study_id, max_trials=30)


async def test_a_refused_command_is_a_problem_and_one_without_an_answer_is_not_confirmed(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.1)
    story = Story()
    study = SearchStory(story, "idle")
    await model.tell(*story.events)
    path = f"/v1/studies/{study.study_id}"
    async with serving(model, answer=decide(story, study)) as server:
        resumed = await server.client.post(f"{path}/resume")
    assert (resumed.status_code, resumed.json()["code"]) == (409, "not_paused")
    async with serving(model) as server:
        stopped = await server.client.post(f"{path}/stop")
        unknown = await server.client.post(path.replace(path[-26:], "a" * 26) + "/stop")
    assert (stopped.status_code, stopped.json()) == (202, {"is_confirmed": False})
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("pause", {"trials": "kill"}, "trials"),
        ("change", {}, "(whole)"),
        ("change", {"max_trials": 0}, "max_trials"),
        ("change", {"limits": {"hours": 0}}, "limits.hours"),
        ("change", {"limits": {"cost": 5}}, "limits.cost"),
        ("trials/0/report", {"step": -1}, "step"),
        ("trials/0/report", {"step": 1, "value": "high"}, "value"),
        ("trials/0/complete", {"values": []}, "values"),
        ("trials/0/complete", {"values": [1.0], "is_stopped": True}, "values"),
        ("suggest", {"request": "x"}, "request"),
    ],
)
async def test_what_is_wrong_is_named_with_its_field(
    model: Model, verb: str, body: dict[str, Any], field: str
) -> None:
    story = Story()
    study = SearchStory(story, "search")
    await model.tell(*story.events)
    async with serving(model) as server:
        answer = await server.client.post(f"/v1/studies/{study.study_id}/{verb}", json=body)
        assert not server.bus.commands("commands.studies")
    assert answer.status_code == 422, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]]


async def test_a_trial_elsewhere_is_asked_for_judged_and_completed(model: Model) -> None:
    story = Story()
    study = SearchStory(story, "elsewhere", with_jobs=False, external=True)
    await model.tell(*story.events)

    def answer(command: Event[Any]) -> Sequence[Event[Any]]:
        first = len(story.events)
        match command.type:
            case "study.ask":
                number = len(study.points)
                asked_by = {"request_id": command.payload.request_id, "is_external": True}
                study.proposes(number, POINT, **asked_by)
            case "trial.report" if command.payload.step >= 10:
                verdict = "continue" if command.payload.value > 0.5 else "stop"
                study.judges(
                    command.payload.number, 10, command.payload.value, verdict, threshold=0.5
                )
                if verdict == "stop":
                    study.stops(command.payload.number, 10, command.payload.value, fully=False)
            case "trial.tell" if command.payload.values:
                study.completes(command.payload.number, *command.payload.values)
            case "trial.tell":
                study.stops(command.payload.number, 10, 0.1)
        return story.events[first:]

    path = f"/v1/studies/{study.study_id}"
    async with serving(model, answer=answer) as server:
        post, get = server.client.post, server.client.get
        asked = await post(f"{path}/suggest", json={"request_id": "worker-1/0"})
        again = await post(f"{path}/suggest", json={"request_id": "worker-1/0"})
        assert (asked.status_code, again.status_code) == (201, 200)
        assert again.json() == asked.json()
        assert asked.json()["trial"]["hyperparameters"] == POINT
        assert asked.json()["rungs"] == [10, 30, 90]
        assert asked.headers["location"] == f"{path}/trials/0"
        early = await post(f"{path}/trials/0/report", json={"step": 5, "value": 0.2})
        assert (early.status_code, early.json()["should_stop"]) == (200, False)
        good = await post(f"{path}/trials/0/report", json={"step": 11, "value": 0.8})
        assert (good.status_code, good.json()["rung"], good.json()["should_stop"]) == (
            200,
            10,
            False,
        )

        await post(f"{path}/suggest", json={"request_id": "worker-1/1"})
        bad = (await post(f"{path}/trials/1/report", json={"step": 40, "value": 0.1})).json()
        assert (bad["should_stop"], bad["threshold"]) == (True, 0.5)
        assert bad["is_confirmed"], "the rung 30 is not waited for: it stops before"
        assert (await get(f"{path}/trials/1/should-stop")).json()["reason"] == bad["reason"] != ""

        ended = await post(f"{path}/trials/0/complete", json={"values": [0.9]})
        assert (ended.status_code, ended.json()["state"]) == (200, "completed")
        sent = len(server.bus.commands("commands.studies"))
        repeated = await post(f"{path}/trials/0/complete", json={"values": [0.9]})
        assert repeated.json() == ended.json()
        assert len(server.bus.commands("commands.studies")) == sent
        stopped = await post(f"{path}/trials/1/complete", json={"is_stopped": True})
        assert stopped.json()["state"] == "stopped"
        late = await post(f"{path}/trials/1/report", json={"step": 30, "value": 0.9})
        assert (late.status_code, late.json()["code"]) == (409, "already_finished")
        assert (await get(f"{path}/trials/0/should-stop")).json()["should_stop"] is True
        assert (await get(f"{path}/trials/7/should-stop")).status_code == 404


async def test_who_was_refused_a_trial_gets_one_by_the_same_request_later(model: Model) -> None:
    story = Story()
    study = SearchStory(story, "elsewhere", with_jobs=False, external=True)
    await model.tell(*story.events)
    is_full = True

    def answer(command: Event[Any]) -> Sequence[Event[Any]]:
        if is_full:
            return [refused(story, study, command, "too_many_running")]
        first = len(story.events)
        study.proposes(0, POINT, request_id=command.payload.request_id, is_external=True)
        return story.events[first:]

    async with serving(model, answer=answer) as server:

        async def ask() -> Any:
            path = f"/v1/studies/{study.study_id}/suggest"
            return await server.client.post(path, json={"request_id": "worker-1/0"})

        full = await ask()
        is_full = False
        free = await ask()
    assert (full.status_code, full.json()["code"]) == (409, "too_many_running")
    assert (free.status_code, free.json()["trial"]["number"]) == (201, 0)


async def test_a_trial_that_is_a_job_takes_no_reports(model: Model) -> None:
    story = Story()
    study = SearchStory(story, "search")
    study.proposes(0, POINT)
    await model.tell(*story.events)
    async with serving(model) as server:
        path = f"/v1/studies/{study.study_id}/trials/0"
        answer = await server.client.post(f"{path}/report", json={"step": 5, "value": 0.2})
        assert not server.bus.commands("commands.studies")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_external")


async def test_trials_from_elsewhere_begin_a_study(model: Model) -> None:
    story = Story()
    spec = SearchStory(Story(), "imported").spec.model_dump(mode="json", exclude_none=True)
    trials = [{"hyperparameters": POINT, "values": [0.8]}, {"hyperparameters": POINT}]

    def answer(command: Event[Any]) -> Sequence[Event[Any]]:
        SearchStory(story, "imported")
        return story.events

    async with serving(model, answer=answer) as server:
        body = {"request_id": "imported", "spec": spec, "trials": trials}
        made = await server.client.post("/v1/studies/import", json=body)
        (command,) = server.bus.commands("commands.studies")
        none = await server.client.post("/v1/studies/import", json={**body, "trials": []})
    assert (made.status_code, made.json()["state"]) == (201, "running")
    assert [trial.values for trial in command.payload.trials] == [(0.8,), None]
    assert none.status_code == 422


async def test_a_preview_is_the_searchs_answer_and_so_is_its_refusal(model: Model) -> None:
    spec = SearchStory(Story(), "search").spec.model_dump(mode="json", exclude_none=True)
    span = {"low": 1.0, "likely": 2.0, "high": 3.0}

    async def forward(part: str, path: str, question: Any) -> Any:
        assert (part, path, question["name"]) == ("hpo", f"/preview?tenant_id={TENANT}", "search")
        if question["seed"] == 1:
            error = FieldError(field="space.width", message="is empty", fix="widen it")
            raise PartRefused(422, "space.width: is empty", [error])
        unknown = dict.fromkeys(("device_hours", "cost_usd", "hours"))
        rungs = [{"step": 10, "num_trials": span}]
        known = {"num_trials": 5, "rungs": rungs, "steps": span, "steps_without_pruner": 9}
        return known | unknown | {"reached_limits": [], "unknown": ["price"]}

    async with serving(model, forward=forward) as server:
        found = await server.client.post("/v1/studies/preview", json={"spec": spec})
        refused = await server.client.post(
            "/v1/studies/preview", json={"spec": {**spec, "seed": 1}}
        )
        assert not server.bus.commands("commands.studies")
    assert (found.status_code, found.json()["steps"]) == (200, span)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["fix"] == "widen it"
