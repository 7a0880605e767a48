"""What is shown of a search: its trials by number, and in which order their page has them."""

import re
from typing import Any

import pytest

from drivetrain_schemas.studies import StudyChange, StudyChanged, StudyPause, StudyStop
from drivetrain_schemas.study_specs import Limits
from services.gateway import commands
from services.gateway.pages import study as study_page
from tests.conftest import OpenDatabase
from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.searches import SearchStory, asha, population, two_objectives
from tests.handlers.gateway.story import Story, search

POINT = {"learning_rate": 0.01, "width": 64, "optimizer": "adam"}


async def test_all_trials_are_listed_by_number_page_after_page(model: Model) -> None:
    story = Story()
    study_id = search(story, 6)
    await model.tell(*story.events)
    path = f"/v1/studies/{study_id}/trials"
    async with serving(model) as server:
        first = (await server.client.get(f"{path}?limit=4")).json()
        second = (await server.client.get(f"{path}?limit=4&after={first['next']}")).json()
        wrong = await server.client.get(f"{path}?after=x")
        unknown = await server.client.get(path.replace(study_id, "study_" + "a" * 26))
    numbers = [trial["number"] for trial in first["trials"] + second["trials"]]
    assert numbers == [0, 1, 2, 3, 4, 5]
    assert second["next"] is None
    ended = first["trials"][0]
    assert (ended["state"], ended["job_state"], ended["values"]) == (
        *("completed", "succeeded"),
        [ended["value"]],
    )
    assert ended["charged_micro_usd"] > 0
    assert second["trials"][-1]["state"] == "proposed"
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "after")
    assert unknown.status_code == 404


async def test_rungs_verdicts_and_counts_follow_the_searchs_decisions(model: Model) -> None:
    story = Story()
    study = asha(story, 40)
    await model.tell(*story.events)
    path = f"/v1/studies/{study.study_id}"
    async with serving(model) as server:
        shown = (await server.client.get(path)).json()
        trials = (await server.client.get(f"{path}/trials?limit=100")).json()["trials"]
        lists = [(await server.client.get(page)).text for page in ("/", "/studies")]
    assert (shown["num_proposed"], shown["num_stopped"]) == (40, study.stopped)
    # A trial that was stopped early has ended.
    assert all(f"<small>{study.completed + study.stopped} of " in page for page in lists)
    assert study.stopped > 15
    assert shown["num_completed"] == study.completed
    stopped = next(trial for trial in trials if trial["state"] == "stopped")
    assert (stopped["verdict"], stopped["value"]) == ("stop", None)
    assert stopped["rungs"][-1]["step"] == stopped["rung"]
    assert stopped["rungs"][-1]["value"] == stopped["measured"]
    assert stopped["detail"].startswith("not among the best third")
    counts = await model.rows("select * from rung_counts order by step")
    judged = [rung for trial in trials for rung in trial["rungs"]]
    assert [row["step"] for row in counts] == [10, 30, 90]
    for row in counts:
        of_rung = [rung["verdict"] for rung in judged if rung["step"] == row["step"]]
        assert row["num_judged"] == len(of_rung)
        assert row["num_stopped"] == of_rung.count("stop")
        assert row["num_continued"] == of_rung.count("continue")
        last = [rung for rung in judged if rung["step"] == row["step"]][-1]
        assert row["threshold"] == last["threshold"]


async def test_a_paused_trial_waits_until_it_is_promoted(model: Model) -> None:
    story = Story()
    study = SearchStory(story, "waits")
    study.proposes(0, POINT)
    study.judges(0, 10, 0.5, "pause")
    study.pauses(0, 10)
    await model.tell(*story.events)
    path = f"/v1/studies/{study.study_id}"
    async with serving(model) as server:
        paused = (await server.client.get(path)).json()
        study.promotes(0)
        await model.tell(story.events[-1])
        again = (await server.client.get(path)).json()
    assert (paused["num_paused"], paused["trials"][0]["state"]) == (1, "paused")
    assert (again["num_paused"], again["trials"][0]["state"]) == (0, "proposed")


async def test_a_trial_that_breaks_the_safety_limit_has_no_rank(model: Model) -> None:
    story = Story()
    study = two_objectives(story, 10)
    await model.tell(*story.events)
    async with serving(model) as server:
        shown = (await server.client.get(f"/v1/studies/{study.study_id}")).json()
    unsafe = shown["trials"][-1]
    assert (unsafe["number"], unsafe["is_safe"], unsafe["rank"]) == (3, False, None)
    assert unsafe["safety"] == 64.0
    assert [trial["rank"] for trial in shown["trials"][:-1]] == list(range(1, 10))
    assert shown["best_number"] == shown["trials"][0]["number"]
    assert len(shown["trials"][0]["values"]) == 2


async def test_a_rebuilt_model_of_searches_is_the_same(
    model: Model, database: OpenDatabase
) -> None:
    story = Story()
    asha(story, 25)
    population(story)
    two_objectives(story, 12)
    await model.tell(*story.events)
    again = Model(await database("gateway"))
    await again.tell(*reversed(story.events), *story.events[::3])
    assert await again.tables() == await model.tables()


async def test_a_completed_study_that_is_extended_runs_again(model: Model) -> None:
    story = Story()
    study = two_objectives(story, 5)
    study.ends(0, 0.5, ended_by="cost", pareto=(0, 2))
    await model.tell(*story.events)
    path = f"/v1/studies/{study.study_id}"
    async with serving(model) as server:
        ended = (await server.client.get(path)).json()
        page = (await server.client.get(path[3:])).text
        limits = Limits(cost_usd=50)
        numbers = {"max_trials": 900, "max_parallel_trials": 3, "limits": limits}
        await model.tell(
            story.tell(StudyChanged(study_id=study.study_id, **numbers, is_revived=True))
        )
        runs = (await server.client.get(path)).json()
    assert (ended["state"], ended["ended_by"], ended["pareto"]) == ("completed", "cost", [0, 2])
    assert "the limit of its cost was reached" in page
    assert (runs["state"], runs["ended_by"], runs["finished_at"]) == ("running", None, None)
    assert (runs["num_trials"], runs["max_parallel_trials"]) == (900, 3)
    assert runs["limits"] == {"cost_usd": 50.0}


async def forward(part: str, path: str, parameters: Any) -> Any:
    """The search's word on what it does next."""
    assert (part, path) == ("hpo", "/next")
    step = {"kind": "propose", "number": 40, "why": "the model expects most here"}
    return {"sentence": "Trial 40 is next", "next": step, "limits": {"hours": 2}, "unknown": 1}


async def test_a_study_says_what_it_has_learned_and_what_it_does_next(model: Model) -> None:
    story = Story()
    study = asha(story, 120)
    two = two_objectives(story, 30)
    await model.tell(*story.events)
    path = f"/v1/studies/{study.study_id}"
    async with serving(model, forward=forward) as server:
        found = (await server.client.get(f"{path}/insight")).json()
        page = (await server.client.get(path[3:])).text
        both = (await server.client.get(f"/v1/studies/{two.study_id}/insight")).json()
    assert found["rungs"][0]["num_judged"] == 120
    assert found["importances"][0]["name"] == "learning_rate"
    assert found["importances"][0]["share"] > 0.3
    assert found["next"]["next"]["why"] == "the model expects most here"
    assert "Trial 40 is next" in page
    assert found["pareto"] == []
    unsafe = {number for number in range(30) if number % 10 == 3}
    assert len(both["pareto"]) > 1
    assert not unsafe & set(both["pareto"])


async def test_a_page_without_the_searchs_answer_leaves_its_next_step_out(model: Model) -> None:
    story = Story()
    study = asha(story, 12)
    await model.tell(*story.events)
    async with serving(model) as server:
        answer = await server.client.get(f"/studies/{study.study_id}")
        insight = (await server.client.get(f"/v1/studies/{study.study_id}/insight")).json()
    assert (answer.status_code, insight["next"]) == (200, None)


async def test_trials_with_a_rank_go_on_page_after_page(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_page, "TRIAL_ROWS", 4)
    story = Story()
    study = two_objectives(story, 11)
    await model.tell(*story.events)
    path = f"/studies/{study.study_id}"
    ranks = []
    async with serving(model) as server:
        for _ in range(3):
            page = (await server.client.get(path)).text
            ranks += [int(rank) for rank in re.findall(r'data-rank="(\d+)"', page)]
            more = re.search(r'href="([^"]+)#trials-title"', page)
            path = more[1] if more else ""
        wrong = await server.client.get(f"/studies/{study.study_id}?after=1")
    assert ranks == list(range(1, 11))
    assert path == ""
    assert wrong.status_code == 422


async def test_the_buttons_of_a_study_send_commands(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.05)
    story = Story()
    study = asha(story, 3)
    await model.tell(*story.events)
    path = f"/studies/{study.study_id}"
    async with serving(model) as server:
        page = (await server.client.get(path)).text
        assert re.findall(rf'action="{path}/(\w+)', page) == ["extend", "pause", "stop", "cancel"]
        for verb in ("pause", "stop"):
            answer = await server.client.post(f"{path}/{verb}")
            assert (answer.status_code, answer.headers["location"]) == (303, path)
        await server.client.post(f"{path}/extend?max_trials=800")
        wrong = await server.client.post(f"{path}/extend?max_trials=0")
        sent = [command.payload for command in server.bus.commands("commands.studies")]
    assert wrong.status_code == 422
    assert sent == [
        StudyPause(study_id=study.study_id),
        StudyStop(study_id=study.study_id),
        StudyChange(study_id=study.study_id, max_trials=800),
    ]
