"""Requests in -> commands out, and their answers; reads of the read model."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drivetrain_schemas.checkpoints import CheckpointPin, CheckpointPinned
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import (
    JobCancel,
    JobCancelling,
    JobQueued,
    JobRequestRejected,
    JobSubmit,
    RejectionReason,
)
from drivetrain_schemas.studies import StudyStarted, StudySubmit
from services.gateway import commands
from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.rest import platform
from services.runtime.bus import PublishFailed
from tests.handlers.gateway.command_line import drivetrain, on_a_port
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.story import START, TENANT, Story, day, recovery, search, spec

SPEC = spec("asked").model_dump(mode="json", exclude_none=True)


def as_event(payload: Any, number: int = 1) -> Event[Any]:
    source = f"/drivetrain/{payload.kind.producer}"
    return Event(f"{payload.key}-{number}", source, START, TENANT, payload, seq=number)


def accept(command: Event[Any]) -> Sequence[Event[Any]]:
    """The scheduler (and the search) say yes."""
    payload = command.payload
    if isinstance(payload, JobSubmit):
        assert payload.job_id
        queued = JobQueued(
            job_id=payload.job_id, request_id=payload.request_id, spec=payload.spec, queued_at=START
        )
        return [as_event(queued)]
    if isinstance(payload, JobCancel):
        return [as_event(JobCancelling(job_id=payload.job_id, reason=payload.reason), 9)]
    if isinstance(payload, StudySubmit):
        assert payload.study_id
        started = StudyStarted(
            study_id=payload.study_id,
            request_id=payload.request_id,
            spec=payload.spec,
            num_trials=payload.spec.max_trials,
            started_at=START,
        )
        return [as_event(started)]
    return []


def refuse(reason: RejectionReason) -> Any:
    def answer(command: Event[Any]) -> Sequence[Event[Any]]:
        rejected = JobRequestRejected(
            job_id=command.payload.job_id,
            request_id="asked",
            command_event_id=command.event_id,
            reason=reason,
            detail=f"refused: {reason}",
        )
        return [as_event(rejected, 7)]

    return answer


async def test_an_accepted_job_is_created(model: Model) -> None:
    async with serving(model, answer=accept) as server:
        answer = await server.client.post("/v1/jobs", json={"request_id": "asked", "spec": SPEC})
        assert answer.status_code == 201, answer.text
        job = answer.json()
        assert job["job_id"] == job_id_for(TENANT, "asked")
        assert (job["state"], job["name"], job["devices"]) == ("queued", "asked", 2)
        assert job["job_url"] == f"http://localhost:8480/jobs/{job['job_id']}"
        again = await server.client.post("/v1/jobs", json={"request_id": "asked", "spec": SPEC})
        assert (again.status_code, again.json()["job_id"]) == (200, job["job_id"])
        assert len(server.bus.commands()) == 1


async def test_the_idempotency_key_is_the_request_id(model: Model) -> None:
    async with serving(model, answer=accept) as server:
        for _ in range(2):
            answer = await server.client.post(
                "/v1/jobs", json={"spec": SPEC}, headers={"Idempotency-Key": "asked"}
            )
            assert answer.json()["job_id"] == job_id_for(TENANT, "asked")
        other = await server.client.post(
            "/v1/jobs",
            json={"spec": SPEC, "request_id": "another"},
            headers={"Idempotency-Key": "asked"},
        )
        assert other.status_code == 422


async def test_a_retry_is_the_same_event_and_another_spec_is_not(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    for name in ("asked", "asked", "other"):
        body = {"request_id": "asked", "spec": {**SPEC, "name": name}}
        assert (await server.client.post("/v1/jobs", json=body)).status_code == 202
    ids = [command.event_id for command in server.bus.commands()]
    assert ids[0] == ids[1] != ids[2]


async def test_without_an_answer_the_job_is_submitted_and_its_page_works(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    answer = await server.client.post("/v1/jobs", json={"spec": SPEC})
    job = answer.json()
    assert (answer.status_code, job["state"]) == (202, "submitted")
    assert (await server.client.get(answer.headers["location"])).json()["name"] == "asked"
    page = await server.client.get(job["job_url"])
    assert (page.status_code, "was sent to the scheduler" in page.text) == (200, True)
    explained = await server.client.get(f"/v1/jobs/{job['job_id']}/explain")
    assert "sent to the scheduler" in explained.json()["text"]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (RejectionReason.NO_SUCH_POOL, 422),
        (RejectionReason.MORE_DEVICES_THAN_POOL, 422),
        (RejectionReason.ID_CONFLICT, 409),
    ],
)
async def test_a_refusal_is_a_problem_with_the_reason(
    model: Model, reason: RejectionReason, status: int
) -> None:
    async with serving(model, answer=refuse(reason)) as server:
        answer = await server.client.post("/v1/jobs", json={"request_id": "asked", "spec": SPEC})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == reason
    assert all(error["message"] and error["field"] for error in answer.json()["errors"])


async def test_another_spec_under_a_known_id_waits_for_the_refusal(model: Model) -> None:
    """The job is there already: its being there must not be taken for a yes."""
    answers = iter((accept, refuse(RejectionReason.ID_CONFLICT)))

    def answer_in_turn(command: Event[Any]) -> Sequence[Event[Any]]:
        return next(answers)(command)

    async with serving(model, answer=answer_in_turn) as server:
        body = {"request_id": "asked", "spec": SPEC}
        assert (await server.client.post("/v1/jobs", json=body)).status_code == 201
        body["spec"] = {**SPEC, "priority": 5}
        answer = await server.client.post("/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "id_conflict")


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (1, True, False),
        (1, 1.0, False),
        (0, False, False),
        (1e23, 1e23, True),
        (1e300, 1e300, True),
        (-0.5, -0.5, True),
    ],
)
async def test_a_known_request_is_recognised_by_its_exact_spec(
    model: Model, monkeypatch: pytest.MonkeyPatch, first: Any, second: Any, is_same: bool
) -> None:
    """Python holds 1, 1.0 and true for equal, and jsonb gives 1e23 back as a whole number."""
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    study = {"name": "s", "space": {"x": {"type": "uniform", "low": 0.0, "high": 1.0}}}
    study["max_trials"] = 2
    for path, body in (
        ("/v1/jobs", lambda value: {**SPEC, "hyperparameters": {"a": value}}),
        (
            "/v1/studies",
            lambda value: {**study, "job": {**SPEC, "hyperparameters": {"a": value}}},
        ),
    ):
        async with serving(model, answer=accept) as server:
            asked = {"request_id": "asked", "spec": body(first)}
            assert (await server.client.post(path, json=asked)).status_code == 201
        async with serving(model) as server:
            asked["spec"] = body(second)
            answer = await server.client.post(path, json=asked)
            sent = server.bus.commands() + server.bus.commands("commands.studies")
        assert (answer.status_code, len(sent)) == ((200, 0) if is_same else (202, 1)), path


async def test_an_answer_that_comes_while_waiting_ends_the_wait(model: Model) -> None:
    async with serving(model) as server:
        request = asyncio.create_task(
            server.client.post("/v1/jobs", json={"request_id": "asked", "spec": SPEC})
        )
        while not server.bus.commands():
            await asyncio.sleep(0.01)
        await model.tell(*accept(server.bus.commands()[0]))
        assert (await request).status_code == 201


async def test_kafka_may_be_unavailable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says that the same request may be sent again."""
    monkeypatch.setattr(commands, "SEND_SECONDS", 0.01)

    async def publish(records: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(server.bus, "publish", publish)
    answer = await server.client.post("/v1/jobs", json={"spec": SPEC})
    assert (answer.status_code, answer.json()["code"]) == (503, "bus_unavailable")
    assert "same request_id" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "2"


async def test_a_submission_whose_acknowledgement_is_lost_is_one_job(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The broker has the record, its acknowledgement does not arrive: the command line retries."""
    async with serving(model) as server, on_a_port(server) as environment:
        publish, tries = server.bus.publish, 0

        async def lose_acknowledgements(records: Sequence[Any]) -> None:
            nonlocal tries
            tries += 1
            await publish(records)
            if tries <= 5:
                raise PublishFailed((), "no acknowledgement")
            await model.tell(*accept(server.bus.commands()[-1]))

        monkeypatch.setattr(server.bus, "publish", lose_acknowledgements)
        (tmp_path / "job.yaml").write_text("{name: asked, command: 'true'}")
        out = await drivetrain(environment, "job", "submit", str(tmp_path / "job.yaml"))
        commands_sent = server.bus.commands()
        assert len(commands_sent) == 6
        assert {command.event_id for command in commands_sent} == {commands_sent[0].event_id}
        assert out.splitlines()[0] == commands_sent[0].payload.job_id
        assert len((await server.client.get("/v1/jobs")).json()["jobs"]) == 1


async def test_cancel_reaches_the_scheduler(model: Model) -> None:
    async with serving(model, answer=accept) as server:
        job = (await server.client.post("/v1/jobs", json={"spec": SPEC})).json()
        answer = await server.client.post(
            f"/v1/jobs/{job['job_id']}/cancel", json={"reason": "no longer needed"}
        )
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})
        assert server.bus.commands()[-1].payload == JobCancel(
            job_id=job["job_id"], reason="no longer needed"
        )
        again = (await server.client.get(f"/v1/jobs/{job['job_id']}")).json()
        assert again["is_cancelling"] is True
        missing = await server.client.post(f"/v1/jobs/job_{'a' * 26}/cancel")
        assert missing.status_code == 404


async def test_a_checkpoint_is_pinned(model: Model) -> None:
    story = Story()
    job = recovery(story)
    await model.tell(*story.events)

    def pin(command: Event[Any]) -> Sequence[Event[Any]]:
        assert isinstance(command.payload, CheckpointPin)
        about = {
            "checkpoint_id": command.payload.checkpoint_id, "tenant_id": TENANT, "step": 200
        }  # fmt: skip
        return [as_event(CheckpointPinned(**about, **job.run), 50)]

    async with serving(model, answer=pin) as server:
        path = f"/v1/jobs/{job.job_id}/checkpoints"
        newest = (await server.client.get(path)).json()["checkpoints"][0]
        answer = await server.client.post(f"/v1/checkpoints/{newest['checkpoint_id']}/pin")
        assert (answer.status_code, answer.json()) == (202, {"is_confirmed": True})
        assert (await server.client.get(path)).json()["checkpoints"][0]["is_pinned"] is True
        missing = await server.client.post(f"/v1/checkpoints/ckpt_{'a' * 26}/pin")
        assert missing.status_code == 404


async def test_a_study_is_started_and_ranked(model: Model) -> None:
    story = Story()
    study_id = search(story)
    await model.tell(*story.events)
    async with serving(model, answer=accept) as server:
        study = (await server.client.get(f"/v1/studies/{study_id}")).json()
        assert [trial["number"] for trial in study["trials"]] == [4, 3, 2, 1, 0, 5]
        assert [trial["rank"] for trial in study["trials"]] == [1, 2, 3, 4, 5, None]
        assert (study["state"], study["best_number"], study["num_trials"]) == ("running", 4, 12)
        answer = await server.client.post("/v1/studies", json={"spec": study["spec"]})
        assert answer.status_code == 201, answer.text
        listed = (await server.client.get("/v1/studies")).json()["studies"]
        assert {one["num_completed"] for one in listed} == {0, 5}


async def test_lists_continue_page_by_page(model: Model) -> None:
    await model.tell(*day())
    async with serving(model) as server:
        names, after = [], None
        while True:
            query = {"limit": 4, **({"after": after} if after else {})}
            page = (await server.client.get("/v1/jobs", params=query)).json()
            names += [job["name"] for job in page["jobs"]]
            after = page["next"]
            if after is None:
                break
        assert len(names) == len(set(names)) == 9
        assert names[:3] == ["resnet-large", "digits", "mnist-baseline"]
        running = (await server.client.get("/v1/jobs?state=running")).json()["jobs"]
        assert [job["name"] for job in running] == ["digits"]
        timeline, after = [], ""
        job_id = running[0]["job_id"]
        while after is not None:
            page = (
                await server.client.get(
                    f"/v1/jobs/{job_id}/timeline",
                    params={"limit": 5, **({"after": after} if after else {})},
                )
            ).json()
            timeline += [item["event_id"] for item in page["items"]]
            after = page["next"]
        assert len(timeline) == len(set(timeline)) == 15


async def test_the_cost_service_may_be_unavailable(model: Model) -> None:
    await model.tell(*day())

    async def forward(part: str, path: str, parameters: Any) -> Any:
        raise PartUnavailable(part)

    async with serving(model, forward=forward) as server:
        job = (await server.client.get("/v1/jobs?state=running")).json()["jobs"][0]
        for part in ("metrics", "logs", "cost"):
            answer = await server.client.get(f"/v1/jobs/{job['job_id']}/{part}")
            assert (answer.status_code, answer.json()["code"]) == (503, "part_unavailable")
        report = (await server.client.get("/v1/cost")).json()
        assert report["spend"] is None
        assert report["charged_micro_usd"] > 0
        page = await server.client.get(f"/jobs/{job['job_id']}")
        assert (page.status_code, "live part unavailable" in page.text) == (200, True)


async def test_the_place_in_the_queue_is_that_of_now(model: Model) -> None:
    await model.tell(*day())
    asked = []

    async def forward(part: str, path: str, parameters: Any) -> Any:
        if part != "scheduler":
            raise PartUnavailable(part)
        asked.append(path)
        holders = [{"job_id": "job_holder", "num_slots": 4}]
        detail = "all devices of pool default are in use"
        return {
            "queue_position": 7,
            "reason": "no_free_devices",
            "detail": detail,
            "holders": holders,
        }

    async with serving(model, forward=forward) as server:
        listed = (await server.client.get("/v1/jobs?state=queued")).json()["jobs"]
        (waiting,) = [job for job in listed if job["waiting"]]
        assert asked == []
        assert waiting["waiting"]["queue_position"] is None
        job_id = waiting["job_id"]
        job = (await server.client.get(f"/v1/jobs/{job_id}")).json()
        explained = (await server.client.get(f"/v1/jobs/{job_id}/explain")).json()
        page = await server.client.get(f"/jobs/{job_id}")

    assert asked == [f"/queue/{job_id}"] * 3
    assert job["waiting"]["queue_position"] == 7
    assert job["waiting"]["holders"] == [{"job_id": "job_holder", "num_slots": 4, "detail": None}]
    assert explained["text"].endswith("in use (number 7 in the queue)")
    assert "number 7 in the queue" in page.text


async def test_without_the_scheduler_a_job_waits_without_a_place(model: Model) -> None:
    await model.tell(*day())
    async with serving(model) as server:
        listed = (await server.client.get("/v1/jobs?state=queued")).json()["jobs"]
        (waiting,) = [job for job in listed if job["waiting"]]
        job = (await server.client.get(f"/v1/jobs/{waiting['job_id']}")).json()
    assert job["waiting"]["reason"] == waiting["waiting"]["reason"]
    assert job["waiting"]["queue_position"] is None


async def test_the_sum_of_charges_is_that_of_all_jobs(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    await model.tell(*day())
    async with serving(model) as server:
        whole = (await server.client.get("/v1/cost")).json()
        monkeypatch.setattr(platform, "MAX_COST_ROWS", 2)
        cut = (await server.client.get("/v1/cost")).json()
    assert cut["items"] == whole["items"][:2]
    assert len(whole["items"]) == whole["num_jobs"] == cut["num_jobs"] > 2
    total = sum(item["charged_micro_usd"] for item in whole["items"])
    assert cut["charged_micro_usd"] == whole["charged_micro_usd"] == total


async def test_reads_are_forwarded_with_their_bounds(model: Model) -> None:
    story = Story()
    job = recovery(story)
    await model.tell(*story.events)
    asked: list[tuple[str, str, Any]] = []

    async def forward(part: str, path: str, parameters: Any) -> Any:
        asked.append((part, path, parameters))
        if path == "/samples":
            series = {"steps": [1, 2], "values": [0.5, "nan"], "num_samples": 2}
            loss = {**series, "is_downsampled": False, "read_from_step": 1}
            return {"job_id": job.job_id, "series": {"loss": loss}, "num_series_left_out": 3}
        if path == "/series":
            empty = {"series": [], "next": None, "num_series": 0, "num_samples_left_out": 0}
            return {"job_id": job.job_id, **empty}
        if path == "/chart":
            return {"series": {"loss": {"steps": 0, "values": [0.5, None]}}}
        if path == "/estimate" and parameters["devices"] == 1:
            price = {"price_id": "p", "price_micro_usd_per_slot_hour": 1}
            return {**price, "estimated_micro_usd": 5}
        if path == "/history/default":
            return {"num_jobs": 0 if parameters["project"] else 3, "median_micro_usd": 7}
        if path == "/estimate":
            raise PartRefused(404, "no price for device type 'cpu'")
        return {"charged_micro_usd": 1, "accruing_micro_usd": 2, "total_micro_usd": 3}

    steps = "attempt=2&from_step=1&to_step=9"
    async with serving(model, forward=forward) as server:
        got = await server.client.get(f"/v1/jobs/{job.job_id}/metrics?names=loss&{steps}")
        assert got.json()["series"]["loss"]["values"] == [0.5, "nan"]
        assert got.json()["series"]["loss"]["read_from_step"] == 1
        assert got.json()["num_series_left_out"] == 3
        await server.client.get(f"/v1/jobs/{job.job_id}/metrics?name=a,b&name=loss")
        curves = f"/v1/jobs/{job.job_id}/chart?name=val%20loss&name=a,b&after=1.2.3.4"
        chart = await server.client.get(curves)
        assert chart.json()["series"]["loss"]["values"] == [0.5, None]
        listed = await server.client.get(f"/v1/jobs/{job.job_id}/series?search=loss&limit=5")
        assert listed.json()["num_series"] == 0
        cost = await server.client.get(f"/v1/jobs/{job.job_id}/cost")
        assert cost.json()["total_micro_usd"] == 3
        body = {"spec": {**SPEC, "resources": {"devices": 2, "device_type": "cpu"}}, "seconds": 60}
        estimate = await server.client.post("/v1/estimates", json=body)
        assert (estimate.status_code, "no price" in estimate.json()["detail"]) == (404, True)
        body = {"spec": {**SPEC, "resources": {"device_type": "cpu"}}}
        estimate = await server.client.post("/v1/estimates", json=body)
        assert estimate.json()["history"]["num_jobs"] == 3
        assert estimate.json()["estimated_micro_usd"] == 7
        body["spec"]["project"] = "robots"
        estimate = await server.client.post("/v1/estimates", json=body)
        assert estimate.status_code == 422
        assert estimate.json()["errors"][0]["field"] == "seconds"
        unknown = await server.client.post("/v1/estimates", json={"spec": SPEC, "seconds": 60})
        assert (unknown.status_code, "no nodes" in unknown.text) == (422, True)
    cost_of = f"/spend/jobs/{job.job_id}"
    paths = [path for _, path, _ in asked]
    assert paths[:5] == ["/samples", "/samples", "/chart", "/series", cost_of]
    assert paths[5:] == ["/estimate", *["/estimate", "/history/default"] * 2]
    assert asked[1][2]["name"] == ["a,b", "loss"]
    assert (asked[2][2]["name"], asked[2][2]["after"]) == (["val loss", "a,b"], "1.2.3.4")
    assert (asked[3][2]["search"], asked[3][2]["limit"]) == ("loss", 5)
    sent = asked[0][2]
    assert (sent["attempt"], sent["from_step"], sent["to_step"]) == (2, 1, 9)
