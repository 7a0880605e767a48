"""No secret of a spec is shown, whatever its place is; and what runs the job has all of them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from drivetrain.cli.exchange import facts
from drivetrain.cli.exchange.hugging_face import card
from drivetrain_schemas.jobs import JobQueued, JobSpec
from drivetrain_schemas.redaction import HIDDEN
from services.gateway import commands
from services.metrics.core.lineage import lineage_job
from tests.handlers.gateway.command_line import drivetrain, on_a_port
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.planting import Planted, backend, plant
from tests.handlers.gateway.story import spec
from tests.handlers.gateway.streams import reading
from tests.handlers.gateway.walking import walk

# In each of these is a word that nothing shows.
COMMAND = (
    *("env", "WANDB_API_KEY=hush01", "python", "train.py"),
    *("--api-key=hush02", "--token", "hush03"),
    "export HUB_PASSWORD=hush04; curl https://me:hush05@mirror/x --secret hush06",
    "hf_hush07abcdefghijklmnop",
)
ENVIRONMENT = {
    "MIRROR_PASSWORD": "hush08",
    "REMOTE": "https://me:hush09@mirror/x",
    "GITHUB": "ghp_hush10abcdefghijklmnop",
    "AWS": "AKIAHUSH11ABCDEFGHIJ",
    "MODEL": "sk-hush12-abcdefghijklmnop",
}
HYPERPARAMETERS = {"hub_token": "hush13", "db_password": "hush14", "learning_rate": 0.1}
DATA = "https://me:hush15@mirror/data?X-Amz-Signature=hush16"
CODE = {"uri": "s3://me:hush17@mirror/code.tar.gz", "sha256": "a" * 64}
PLACES = {
    "command": COMMAND,
    "environment": ENVIRONMENT,
    "hyperparameters": HYPERPARAMETERS,
    "data": DATA,
    "code": CODE,
}
NUM_SECRETS = 17


def secrets_in(text: str) -> set[str]:
    found = text.lower()
    return {f"hush{n:02d}" for n in range(1, NUM_SECRETS + 1) if f"hush{n:02d}" in found}


def test_every_secret_is_in_the_spec() -> None:
    assert len(secrets_in(spec("digits", **PLACES).model_dump_json())) == NUM_SECRETS


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)


async def planted_in(server: Server, everyone: list[Planted]) -> Planted:
    found = await plant(server, "default", "okapi", "node-1", **PLACES)
    everyone.append(found)
    whole = spec("parked", **PLACES).model_dump_json().encode()
    headers = (("ce_runtoken", b"hush01"), ("authorization", b"hush02"))
    found.known["parked_id"] += [
        await server.model.park(whole, headers=headers),
        await server.model.park(b"not json: " + whole),
    ]
    return found


@pytest.mark.usefixtures("at_once")
async def test_no_route_and_no_event_of_the_stream_shows_a_secret(model: Model) -> None:
    everyone: list[Planted] = []
    async with serving(model, forward=backend(everyone, [])) as server:
        async with reading(server) as reader:
            found = await planted_in(server, everyone)
            text = ""
            while f'"job_id": "{found.job_ids[0]}"' not in text.replace('":"', '": "'):
                text += str(await reader.frame())
        assert secrets_in(text) == set()
        answers = await walk(server, "default", found.known)
        assert {one.url: secrets_in(one.text) for one in answers if secrets_in(one.text)} == {}
        shown = [one for one in answers if HIDDEN in one.text]
        assert {
            "/v1/jobs/{job_id}",
            "/v1/jobs/{job_id}/timeline",
            "/v1/jobs/{job_id}/reproduce",
            "/v1/studies/{study_id}",
            "/v1/comparison",
            "/v1/parked/{parked_id}",
            "/jobs/{job_id}",
            "/parked/{parked_id}",
        } <= {one.route for one in shown}


@pytest.mark.usefixtures("at_once")
async def test_nothing_that_leaves_by_the_command_line_has_a_secret(model: Model) -> None:
    everyone: list[Planted] = []
    async with (
        serving(model, forward=backend(everyone, [])) as server,
        on_a_port(server) as environment,
    ):
        found = await planted_in(server, everyone)
        job_id = found.job_ids[0]
        for words in (
            ("job", "show", job_id),
            ("job", "show", job_id, "-o", "json"),
            ("job", "explain", job_id),
            ("job", "list", "-o", "json"),
            ("job", "compare", job_id, found.job_ids[1]),
            ("job", "rerun", job_id),
            ("study", "show", found.study_id, "-o", "json"),
            ("parked", "show", found.known["parked_id"][-1]),
        ):
            printed = await drivetrain(environment, *words)
            assert printed.strip(), words
            assert secrets_in(printed) == set(), words
        job = (await server.client.get(f"/v1/jobs/{job_id}")).json()
        checkpoints = (await server.client.get(f"/v1/jobs/{job_id}/checkpoints")).json()
    # A view with secrets, as of a gateway that hides nothing: what exports it hides them itself.
    whole = {**job, "spec": spec("okapi", **PLACES).model_dump(mode="json")}
    whole["hyperparameters"] = HYPERPARAMETERS
    for view in (job, whole):
        told = [facts.tags(view), facts.spec_of(view), dict(facts.hyperparameters(view))]
        assert secrets_in(json.dumps(told)) == set()
        assert secrets_in(card(view, checkpoints["checkpoints"][0])) == set()


def test_lineage_has_no_secret() -> None:
    queued = JobQueued(
        job_id="job_" + "a" * 26,
        request_id="r",
        spec=spec("digits", **PLACES),
        queued_at="2026-01-01T00:00:00Z",
    )
    assert secrets_in(repr(lineage_job("default", queued))) == set()


@pytest.mark.usefixtures("at_once")
async def test_what_runs_a_job_has_its_secrets_and_so_has_a_rerun_and_a_fork(model: Model) -> None:
    everyone: list[Planted] = []
    async with serving(model, forward=backend(everyone, [])) as server:
        found = await planted_in(server, everyone)
        base = f"/v1/jobs/{found.job_ids[0]}"
        again = await server.client.post(f"{base}/rerun", json={})
        assert again.status_code == 202, again.text
        assert secrets_in(again.text) == set()
        view = (await server.client.get(base)).json()["spec"]
        changed = {**view, "hyperparameters": {**view["hyperparameters"], "learning_rate": 0.5}}
        body: dict[str, Any] = {"spec": changed, "secrets_of": found.job_ids[0]}
        fork = await server.client.post("/v1/jobs", json=body)
        assert fork.status_code == 202, fork.text
        by_job = {event.payload.key: event.payload.spec for event in server.bus.commands()}
    sent = by_job[found.job_ids[-1]]
    rerun, forked = by_job[again.json()["job_id"]], by_job[fork.json()["job_id"]]
    original = spec("okapi", **{"tags": ["okapi"], "project": "okapi", **PLACES})
    assert of_pod(sent) == of_pod(original)
    assert of_pod(rerun) == of_pod(original)
    new = {**HYPERPARAMETERS, "learning_rate": 0.5}
    assert of_pod(forked) == {**of_pod(original), "hyperparameters": new}


def of_pod(given: JobSpec) -> Mapping[str, Any]:
    return given.model_dump(mode="json", include=set(PLACES))


@pytest.mark.usefixtures("at_once")
async def test_what_is_hidden_cannot_be_submitted_as_a_value(server: Server) -> None:
    whole = spec("digits", **PLACES).model_dump(mode="json")
    whole["environment"] = {"HUB_TOKEN": HIDDEN}
    answer = await server.client.post("/v1/jobs", json={"spec": whole})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "spec.environment.HUB_TOKEN"
    answer = await server.client.post(
        "/v1/jobs", json={"spec": whole, "secrets_of": "job_" + "a" * 26}
    )
    assert answer.status_code == 404
