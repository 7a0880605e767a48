"""Stop, pause and resume over REST and on the page: sent, confirmed, refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from drivetrain_schemas.annotations import JobAnnotate, JobAnnotated
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import (
    JobPause,
    JobPaused,
    JobPausing,
    JobResume,
    JobResumed,
    JobStop,
    JobStopped,
    JobStopping,
    RejectionReason,
)
from tests.handlers.gateway.model import BASE_URL, Model, serving, sign_in
from tests.handlers.gateway.story import START
from tests.handlers.gateway.test_api import SPEC, accept, as_event, refuse

CHANGED = ("state", "is_stopping", "is_pausing")


def carry_out(command: Event[Any]) -> Sequence[Event[Any]]:
    """The scheduler accepts it, and nothing has happened yet."""
    about = command.payload
    match about:
        case JobStop():
            return [as_event(JobStopping(job_id=about.job_id, reason=about.reason), 10)]
        case JobPause():
            return [as_event(JobPausing(job_id=about.job_id, reason=about.reason), 10)]
        case JobResume():
            return [as_event(JobResumed(job_id=about.job_id, queued_at=START), 30)]
        case JobAnnotate():
            said = {"tags": about.add_tags, "note": about.note, "project": about.project}
            return [as_event(JobAnnotated(job_id=about.job_id, **said), 40)]
    return accept(command)


async def test_a_job_is_stopped(model: Model) -> None:
    async with serving(model, answer=carry_out) as server:
        job_id = (await server.client.post("/v1/jobs", json={"spec": SPEC})).json()["job_id"]
        path = f"/v1/jobs/{job_id}"
        body = {"reason": "poor", "checkpoint": False}
        answer = await server.client.post(f"{path}/stop", json=body)
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})
        assert server.bus.commands()[-1].payload == JobStop(job_id=job_id, **body)
        job = (await server.client.get(path)).json()
        assert [job[name] for name in CHANGED] == ["queued", True, False]
        await model.tell(as_event(JobStopped(job_id=job_id, reason="poor", finished_at=START), 20))
        job = (await server.client.get(path)).json()
        assert [job[name] for name in CHANGED] == ["stopped", False, False]
        explained = (await server.client.get(f"{path}/explain")).json()
        assert explained["text"] == "Stopped early: poor"
        listed = (await server.client.get("/v1/jobs", params={"state": "stopped"})).json()
        assert [one["job_id"] for one in listed["jobs"]] == [job_id]


async def test_a_job_is_paused_and_resumed(model: Model) -> None:
    async with serving(model, answer=carry_out) as server:
        job_id = (await server.client.post("/v1/jobs", json={"spec": SPEC})).json()["job_id"]
        path = f"/v1/jobs/{job_id}"
        page = (await server.client.get(f"/jobs/{job_id}")).text
        assert f'action="/jobs/{job_id}/pause"' in page
        answer = await server.client.post(f"{path}/pause", json={"reason": "later"})
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})
        job = (await server.client.get(path)).json()
        assert [job[name] for name in CHANGED] == ["queued", False, True]
        paused = JobPaused(job_id=job_id, reason="later", attempt=1, paused_at=START)
        await model.tell(as_event(paused, 20))
        job = (await server.client.get(path)).json()
        assert [job[name] for name in CHANGED] == ["paused", False, False]
        page = (await server.client.get(f"/jobs/{job_id}")).text
        assert f'action="/jobs/{job_id}/resume"' in page
        assert "Paused; it holds no slots" in page
        overview = (await server.client.get("/")).text
        assert "<dt>Paused</dt><dd>1</dd>" in overview
        assert "<dt>Waiting</dt><dd>0</dd>" in overview

        answer = await server.client.post(f"/jobs/{job_id}/resume")
        assert answer.status_code == 303
        assert server.bus.commands()[-1].payload == JobResume(job_id=job_id)
        job = (await server.client.get(path)).json()
        assert [job[name] for name in CHANGED] == ["queued", False, False]


@pytest.mark.parametrize("verb", ["stop", "pause", "resume"])
async def test_a_refusal_and_an_unknown_job(model: Model, verb: str) -> None:

    async with serving(model, answer=accept) as server:
        job_id = (await server.client.post("/v1/jobs", json={"spec": SPEC})).json()["job_id"]
        missing = await server.client.post(f"/v1/jobs/job_{'a' * 26}/{verb}")
        assert missing.status_code == 404
    async with serving(model, answer=refuse(RejectionReason.ALREADY_FINISHED)) as server:
        answer = await server.client.post(f"/v1/jobs/{job_id}/{verb}")
        assert answer.status_code == 409
        assert "already_finished" in answer.text


async def test_a_job_is_annotated_and_found_by_its_new_tags_and_project(model: Model) -> None:
    async with serving(model, answer=carry_out) as server:
        spec = {**SPEC, "tags": ["nightly"], "project": "digits"}
        path = (await server.client.post("/v1/jobs", json={"spec": spec})).headers["location"]
        body = {"add_tags": ["best"], "note": "<b>Good</b>\nKeep.", "project": "other"}
        answer = await server.client.post(f"{path}/annotate", json=body)
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})

        job = (await server.client.get(path)).json()
        assert (job["tags"], job["project"]) == (["best"], "other")
        assert job["note"] == "<b>Good</b>\nKeep."
        page = (await server.client.get(path.removeprefix("/v1"))).text
        assert "&lt;b&gt;Good&lt;/b&gt;\nKeep." in page
        assert "Annotated: project other; tags best" in page

        async def found(**query: str) -> int:
            return len((await server.client.get("/v1/jobs", params=query)).json()["jobs"])

        assert [await found(project="other"), await found(project="digits")] == [1, 0]
        assert [await found(tag="best"), await found(tag="nightly")] == [1, 0]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"add_tags": ["a"], "remove_tags": ["a"]}, "remove_tags"),
        ({"add_tags": ["a b"]}, "add_tags"),
        ({"note": "n" * 4097}, "note"),
        ({"project": "a/b"}, "project"),
    ],
)
async def test_an_annotation_that_says_nothing_valid_is_refused(
    model: Model, body: dict[str, Any], field: str
) -> None:
    async with serving(model, answer=carry_out) as server:
        path = (await server.client.post("/v1/jobs", json={"spec": SPEC})).headers["location"]
        answer = await server.client.post(f"{path}/annotate", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith(field)


async def test_the_form_of_a_page_sends_what_was_changed_in_it(model: Model) -> None:
    async with serving(model, answer=carry_out) as server:
        job_id = (await server.client.post("/v1/jobs", json={"spec": SPEC})).json()["job_id"]
        headers = {**await sign_in(server), "origin": BASE_URL}

        async def save(**fields: str) -> int:
            path = f"/jobs/{job_id}/annotate"
            answer = await server.stranger.post(path, data=fields, headers=headers)
            return answer.status_code

        assert await save(note="one\r\ntwo", tags="good, compared", project="vision") == 303
        job = (await server.client.get(f"/v1/jobs/{job_id}")).json()
        assert (job["note"], job["project"]) == ("one\ntwo", "vision")
        assert job["tags"] == ["good", "compared"]
        num_sent = len(server.bus.commands())
        assert await save(note="one\r\ntwo", tags="compared,good", project="vision") == 303
        assert len(server.bus.commands()) == num_sent, "nothing was changed"
        assert await save(note="", tags="good", project="vision") == 303
        assert server.bus.commands()[-1].payload == JobAnnotate(
            job_id=job_id, remove_tags=("compared",), note=""
        )
        assert await save(project="<b>") == 422
