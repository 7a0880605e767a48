"""Alerts and silences in the read model, by REST and on their page."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drivetrain_schemas.checkpoints import CheckpointingFailed
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from drivetrain_schemas.silences import (
    MAX_SILENCE,
    SilenceChanged,
    SilenceEnd,
    SilenceEnded,
    SilenceRequestRejected,
    SilenceSet,
    SilenceSpec,
    silence_id_for,
)
from services.gateway.core.alert_hints import HINTS
from services.gateway.queries import alerts as queries_alerts
from tests.handlers.gateway.model import BASE_URL, Model, Server, serving, sign_in
from tests.handlers.gateway.story import TENANT, JobStory, Story


def raises(job: JobStory, kind: AlertKind = AlertKind.STRAGGLER) -> None:
    run = {name: job.run[name] for name in ("job_id", "run_id", "attempt")}
    detail = f"{kind.value}: something about it"
    job.story.tell(AlertRaised(tenant_id=TENANT, **run, alert=kind, step=7, detail=detail))


def clears(job: JobStory, kind: AlertKind = AlertKind.STRAGGLER) -> None:
    run = {name: job.run[name] for name in ("job_id", "run_id", "attempt")}
    job.story.tell(AlertCleared(tenant_id=TENANT, **run, alert=kind, detail="fine"))


def spec(hours: float = 2, **fields: Any) -> SilenceSpec:
    return SilenceSpec(ends_at=datetime.now(UTC) + timedelta(hours=hours), **fields)


def silenced(story: Story, wanted: SilenceSpec, command: str = "command") -> Event[Any]:
    return story.tell(
        SilenceChanged(
            tenant_id=TENANT,
            silence_id=silence_id_for(TENANT, wanted),
            spec=wanted,
            command_event_id=command,
            created_at=story.now,
        )
    )


def ended(story: Story, wanted: SilenceSpec) -> Event[Any]:
    silence_id = silence_id_for(TENANT, wanted)
    return story.tell(
        SilenceEnded(tenant_id=TENANT, silence_id=silence_id, spec=wanted, ended_at=story.now)
    )


async def listed(server: Server, query: str = "") -> list[dict[str, Any]]:
    answer = await server.client.get(f"/v1/alerts{query}")
    assert answer.status_code == 200, answer.text
    alerts: list[dict[str, Any]] = answer.json()["alerts"]
    return alerts


def names(alerts: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["alert"], each["state"]) for each in alerts]


async def test_alerts_are_open_until_they_are_cleared_or_their_run_has_ended(model: Model) -> None:
    story = Story()
    job, failed = story.job("digits", project="vision"), story.job("broken")
    job.starts()
    failed.starts()
    raises(failed, AlertKind.NOT_FINITE)
    raises(job, AlertKind.SLOWER)
    raises(job)
    clears(job, AlertKind.SLOWER)
    failed.fails()
    await model.tell(*story.events)
    async with serving(model) as server:
        everything = await listed(server)
        assert names(everything) == [
            ("straggler", "open"), ("slower", "ended"), ("not_finite", "ended")
        ]  # fmt: skip
        first = everything[0]
        assert (first["job_id"], first["job_name"], first["project"]) == (
            job.job_id, "digits", "vision"
        )  # fmt: skip
        assert (first["silence"], first["hint"]) == (None, HINTS["straggler"])
        assert everything[1]["ended_at"] > everything[1]["raised_at"]
        assert names(await listed(server, "?state=open")) == [("straggler", "open")]
        assert names(await listed(server, "?state=ended&alert=slower")) == [("slower", "ended")]
        assert names(await listed(server, "?project=vision")) == names(everything[:2])
        assert names(await listed(server, f"?job_id={failed.job_id}")) == names(everything[2:])
        of_job = (await server.client.get(f"/v1/jobs/{job.job_id}/alerts")).json()["alerts"]
        assert names(of_job) == names(everything[:2])
        unknown = await server.client.get(f"/v1/jobs/{job_id_for(TENANT, 'none')}/alerts")
        assert unknown.status_code == 404
        for query in ("?state=new", "?alert=loud", "?after=x", "?limit=1000"):
            assert (await server.client.get(f"/v1/alerts{query}")).status_code == 422, query


async def test_a_job_says_after_its_end_what_has_happened(model: Model) -> None:
    """An end for webhooks is none for people: NaN was logged, and samples are missing."""
    story = Story()
    job = story.job("digits")
    job.starts()
    lasting = AlertKind.NOT_FINITE, AlertKind.SAMPLES_DROPPED, AlertKind.SCRIPT
    for kind in (*lasting, AlertKind.STALLED):
        raises(job, kind)
        clears(job, kind)
    job.fails()
    await model.tell(*story.events)
    async with serving(model) as server:
        shown = (await server.client.get(f"/v1/jobs/{job.job_id}")).json()["alerts"]
        page = (await server.client.get(f"/jobs/{job.job_id}")).text
        everything = await listed(server)
    assert [alert["alert"] for alert in shown] == list(lasting)
    assert "<strong>not finite</strong>" in page
    assert {state for _, state in names(everything)} == {"ended"}


@pytest.mark.parametrize("state", ["", "open"])
async def test_pages_follow_each_other_without_a_gap(
    model: Model, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(queries_alerts, "WINDOW", 3)
    story = Story()
    jobs = [story.job(f"job-{number}") for number in range(4)]
    for job in jobs:
        job.starts()
        raises(job)
        raises(job, AlertKind.SLOWER)
    await model.tell(*story.events)
    async with serving(model) as server:
        for query, wanted in ((f"state={state}&" if state else "", 8), ("alert=slower&", 4)):
            found: list[tuple[str, str]] = []
            after: str | None = ""
            while after is not None:
                path = f"/v1/alerts?{query}limit=2" + (f"&after={after}" if after else "")
                page = (await server.client.get(path)).json()
                found += [(each["run_id"], each["alert"]) for each in page["alerts"]]
                after = page["next"]
            assert len(found) == len(set(found)) == wanted, query


@pytest.mark.parametrize(
    ("wanted", "is_silenced"),
    [
        ({"alert": AlertKind.STRAGGLER}, True),
        ({"alert": AlertKind.SLOWER}, False),
        ({"project": "vision"}, True),
        ({"project": "speech"}, False),
        ({"job_id": job_id_for(TENANT, "digits")}, True),
        ({"job_id": job_id_for(TENANT, "other")}, False),
        ({}, True),
        ({"hours": -1}, False),
    ],
)
async def test_an_alert_shows_the_silence_that_it_is_under(
    model: Model, wanted: dict[str, Any], is_silenced: bool
) -> None:
    story = Story()
    job = story.job("digits", project="vision")
    job.starts()
    raises(job)
    silence = spec(**wanted)
    silenced(story, silence)
    await model.tell(*story.events)
    async with serving(model) as server:
        (alert,) = await listed(server)
        (on_job,) = (await server.client.get(f"/v1/jobs/{job.job_id}")).json()["alerts"]
        assert alert["state"] == "open", "silenced alerts exist as before"
        assert (alert["silence"] is not None) == (on_job["silence"] is not None) == is_silenced
        await model.tell(ended(story, silence))
        (alert,) = await listed(server)
        assert alert["silence"] is None
        assert (await server.client.get("/v1/silences")).json() == {"silences": []}


async def test_silenced_alerts_do_not_hide_others_from_the_number_on_every_page(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.pages.badges.MAX_ALERTS", 3)
    story = Story()
    loud = [story.job(f"loud-{number}", project="noise") for number in range(8)]
    jobs = [*loud, story.job("digits"), story.job("letters", project="vision")]
    for job in jobs:
        job.starts()
        raises(job)
    silenced(story, spec(project="noise"))
    await model.tell(*story.events)
    async with serving(model) as server:
        await sign_in(server)
        assert 'title="2 open alerts"' in (await server.client.get("/")).text


async def test_a_job_without_checkpoints_is_listed(model: Model) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    story.tell(
        CheckpointingFailed(
            tenant_id=TENANT, **job.run, failed_step=9, detail="no space", reason="store_full"
        )
    )
    await model.tell(*story.events)
    async with serving(model) as server:
        (alert,) = await listed(server, "?state=open")
    assert (alert["alert"], alert["state"]) == ("no_checkpoints", "open")


async def test_a_silence_is_set_confirmed_and_ended(model: Model) -> None:
    story = Story()
    job = story.job("digits")
    await model.tell(*story.events)

    def answer(command: Event[Any]) -> list[Event[Any]]:
        payload = command.payload
        if isinstance(payload, SilenceSet):
            return [silenced(story, payload.spec, command.event_id)]
        assert isinstance(payload, SilenceEnd)
        return [ended(story, made[payload.silence_id])]

    made: dict[str, SilenceSpec] = {}
    async with serving(model, answer=answer) as server:
        body = {"alert": "straggler", "job_id": job.job_id, "reason": "repair", "for_seconds": 60}
        answer_ = await server.client.post("/v1/silences", json=body)
        assert (answer_.status_code, answer_.json()["is_confirmed"]) == (202, True)
        (command,) = server.bus.commands("commands.silences")
        assert isinstance(command.payload, SilenceSet)
        silence_id = answer_.json()["silence_id"]
        made[silence_id] = command.payload.spec
        lasts = command.payload.spec.ends_at - datetime.now(UTC)
        assert timedelta(seconds=30) < lasts <= timedelta(seconds=60)
        (listed_,) = (await server.client.get("/v1/silences")).json()["silences"]
        assert (listed_["silence_id"], listed_["reason"]) == (silence_id, "repair")
        end = await server.client.post(f"/v1/silences/{silence_id}/end")
        assert (end.status_code, end.json()["is_confirmed"]) == (202, True)
        unknown = silence_id_for(TENANT, spec(project="none"))
        assert (await server.client.post(f"/v1/silences/{unknown}/end")).status_code == 404


async def test_a_silence_lasts_two_hours_and_is_not_confirmed_without_an_answer(
    server: Server,
) -> None:
    answer = await server.client.post("/v1/silences", json={})
    assert (answer.status_code, answer.json()["is_confirmed"]) == (202, False)
    lasts = datetime.fromisoformat(answer.json()["ends_at"]) - datetime.now(UTC)
    assert timedelta(minutes=119) < lasts <= timedelta(hours=2)


async def test_wrong_requests_are_refused_before_they_are_sent(server: Server) -> None:
    job_id = job_id_for(TENANT, "none")
    too_long = int(MAX_SILENCE.total_seconds()) + 1
    for body, field in (
        ({"alert": "loud"}, "alert"),
        ({"job_id": job_id}, "job_id"),
        ({"job_id": job_id, "project": "vision"}, "project"),
        ({"for_seconds": too_long}, "for_seconds"),
        ({"for_seconds": 60, "ends_at": "2026-01-01T00:00:00Z"}, "for_seconds"),
        ({"ends_at": "tomorrow"}, "ends_at"),
        ({"reason": "x" * 513}, "reason"),
        ({"until": 1}, "until"),
    ):
        answer = await server.client.post("/v1/silences", json=body)
        assert answer.status_code == 422, body
        assert answer.json()["errors"][0]["field"] == field
    assert server.bus.commands("commands.silences") == []


async def test_a_refusal_of_the_metrics_service_names_field_and_fix(model: Model) -> None:
    story = Story()

    def refuse(command: Event[Any]) -> list[Event[Any]]:
        error = FieldError(field="spec.ends_at", message="too long", fix="write less")
        rejected = SilenceRequestRejected(
            tenant_id=TENANT,
            silence_id=silence_id_for(TENANT, command.payload.spec),
            command_event_id=command.event_id,
            reason="too_long",
            detail="too long",
            errors=(error,),
        )
        return [story.tell(rejected)]

    async with serving(model, answer=refuse) as server:
        answer = await server.client.post("/v1/silences", json={})
    assert (answer.status_code, answer.json()["code"]) == (422, "too_long")
    assert answer.json()["errors"][0]["fix"] == "write less"


def test_every_alert_has_a_hint() -> None:
    assert HINTS.keys() == {kind.value for kind in AlertKind}


async def test_the_page_shows_open_alerts_with_a_hint_silences_and_ended_ones(
    model: Model,
) -> None:
    story = Story()
    job, other = story.job("digits", project="vision"), story.job("other")
    job.starts()
    other.starts()
    raises(job)
    raises(other, AlertKind.SLOWER)
    clears(other, AlertKind.SLOWER)
    silenced(story, spec(alert=AlertKind.STRAGGLER, project="vision", reason="<i>repair</i>"))
    await model.tell(*story.events)
    async with serving(model) as server:
        text = " ".join((await server.client.get("/alerts")).text.split())
        on_job = (await server.client.get(f"/jobs/{job.job_id}")).text
    still_open, _, rest = text.partition('id="silences"')
    in_force, _, over = rest.partition('id="ended-alerts"')
    assert job.job_id in still_open
    assert other.job_id not in still_open
    assert HINTS["straggler"].split(":")[0] in still_open
    assert "Silenced until" in still_open
    assert "project vision" in in_force
    assert "&lt;i&gt;repair&lt;/i&gt;" in in_force
    assert "slower: something about it" in over
    assert "Silenced until" in on_job


async def test_the_forms_of_the_page_silence_and_end(model: Model) -> None:
    story = Story()
    job = story.job("digits", project="vision")
    await model.tell(*story.events)
    wanted = spec(job_id=job.job_id)
    await model.tell(silenced(story, wanted))
    form = {"alert": "slower", "job_id": job.job_id, "project": "vision", "for_seconds": "3600",
            "reason": ""}  # fmt: skip

    def answer(command: Event[Any]) -> list[Event[Any]]:
        if isinstance(command.payload, SilenceSet):
            return [silenced(story, command.payload.spec, command.event_id)]
        return [ended(story, wanted)]

    async with serving(model, answer=answer) as server:
        session = await sign_in(server)

        async def send(path: str, fields: dict[str, str], origin: str = BASE_URL) -> Any:
            headers = {**session, "origin": origin}
            return await server.stranger.post(path, data=fields, headers=headers)

        answers = [
            await send("/alerts/silence", {**form, "of": "job", "back": job.job_id}),
            await send("/alerts/silence", {**form, "of": "project"}),
            await send("/alerts/silence", {**form, "of": "tenant", "alert": ""}),
            await send(f"/silences/{silence_id_for(TENANT, wanted)}/end", {}),
        ]
        assert [(one.status_code, one.headers["location"]) for one in answers] == [
            (303, f"/jobs/{job.job_id}"), *[(303, "/alerts")] * 3
        ]  # fmt: skip
        sent = [command.payload for command in server.bus.commands("commands.silences")]
        assert [(it.spec.alert, it.spec.job_id, it.spec.project) for it in sent[:3]] == [
            ("slower", job.job_id, None), ("slower", None, "vision"), (None, None, None)
        ]  # fmt: skip
        assert isinstance(sent[3], SilenceEnd)
        for fields in (
            {**form, "for_seconds": "soon"},
            {**form, "alert": "loud"},
            {**form, "reason": "\0"},
            {**form, "back": "//elsewhere.example"},
            {f"field-{number}": "x" for number in range(30)},
        ):
            assert (await send("/alerts/silence", fields)).status_code == 422, fields
        assert (await send("/alerts/silence", form, "http://elsewhere.example")).status_code == 403
        assert (await send("/v1/silences", form)).status_code == 415, "forms are for pages"
        assert len(server.bus.commands("commands.silences")) == 4
