"""What a job ran with, on its page and by REST, and its repetition."""

from typing import Any

from drivetrain_schemas.descriptions import RunDescribed, Surroundings
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import run_id_for
from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.story import Story
from tests.handlers.gateway.test_api import SPEC, accept, as_event

SECRET = "a-value-that-nobody-may-see"
HOSTILE = "<script>alert(1)</script>"
SOURCE = {
    "commit": "ab" * 20,
    "branch": HOSTILE,
    "is_dirty": True,
    "diff": f"+{HOSTILE}",
    "diff_characters": 90_000,
}


def described(job_id: str, number: int = 1, **fields: Any) -> RunDescribed:
    said = {
        "python": "3.11.7", "platform": "Linux", "entry_point": "train.py", "seed": 7,
        "packages": [{"name": "torch", "version": "2.9"}], "device_type": "h200", **fields,
    }  # fmt: skip
    return RunDescribed(
        tenant_id="default",
        job_id=job_id,
        run_id=run_id_for(job_id, 1),
        attempt=1,
        number=number,
        surroundings=Surroundings.model_validate(said),
    )


async def test_a_job_is_repeated_with_its_seed_and_says_what_differed(model: Model) -> None:
    sent: list[Event[Any]] = []

    def answer(command: Event[Any]) -> Any:
        sent.append(command)
        return accept(command)

    async with serving(model, answer=answer) as server:
        client = server.client
        command = ["python", "train.py", "--token", f"-{SECRET}", "--lr", "1"]
        environment = {"API_TOKEN": SECRET, "LEVEL": "debug"}
        spec = {**SPEC, "environment": environment, "source": SOURCE, "command": command}
        first = (await client.post("/v1/jobs", json={"spec": spec})).json()["job_id"]
        await model.tell(as_event(described(first), 50))
        await model.tell(
            as_event(described(first, 2, python="3.11.8", hyperparameters={"momentum": 0.9}), 51)
        )
        found = (await client.get(f"/v1/jobs/{first}/reproduce")).json()
        assert (found["seed"], found["surroundings"]["python"]) == (7, "3.11.8")
        assert found["variables"] == ["API_TOKEN", "LEVEL"]
        assert SECRET not in str(found)
        assert "device type" in [one["what"] for one in found["would_differ"]]

        made = await client.post(f"/v1/jobs/{first}/rerun", json={"request_id": "again"})
        again = made.json()
        assert made.status_code == 201
        expected = {**sent[0].payload.spec.model_dump(), "seed": 7, "rerun_of": first}
        assert sent[1].payload.spec.model_dump() == expected
        repeated = await client.post(f"/v1/jobs/{first}/rerun", json={"request_id": "again"})
        assert (repeated.json()["job_id"], len(sent)) == (again["job_id"], 2)
        other = await client.post(f"/v1/jobs/{first}/rerun")
        assert other.json()["job_id"] not in (first, again["job_id"])

        new = described(again["job_id"], packages=[{"name": "torch", "version": "2.10"}])
        await model.tell(as_event(new, 60))
        found = (await client.get(f"/v1/jobs/{again['job_id']}/reproduce")).json()
        assert {"what": "torch", "was": "2.9", "now": "2.10"} in found["has_differed"]

        page = (await client.get(f"/jobs/{first}")).text
        section = page.partition('id="reproduce"')[2].partition("</section>")[0]
        assert "API_TOKEN" in section
        assert "the first 26 of 90,000 characters" in section
        assert "&lt;script&gt;" in section
        assert SECRET not in page
        assert "python train.py --token &#39;***&#39; --lr 1" in page
        assert "debug" in page.partition('id="spec-title"')[2]
        assert HOSTILE not in page
        both = await client.get("/v1/comparison", params={"job_id": [first, again["job_id"]]})
        lines = {one["name"]: one for one in both.json()["lines"]}
        assert lines["package.torch"]["values"] == ["2.9", "2.10"]
        assert lines["momentum"]["values"] == ["0.9", "none"]
        assert lines["momentum"]["is_hyperparameter"]
        assert {"what": "hyperparameter momentum", "was": "0.9", "now": "none"} in found[
            "has_differed"
        ]
        view = (await client.get(f"/v1/jobs/{first}")).json()
        assert view["hyperparameters"] == {"learning_rate": 0.05, "momentum": 0.9}
        compared = await client.get("/compare", params={"job": [first, again["job_id"]]})
        assert "package.torch" in compared.text
        assert SECRET not in compared.text


async def test_a_job_that_says_nothing_of_itself_has_a_page_and_no_job_is_not_repeated(
    model: Model,
) -> None:
    story = Story()
    job = story.job("digits")
    await model.tell(*story.events)
    async with serving(model, answer=accept) as server:
        assert (await server.client.get(f"/jobs/{job.job_id}")).status_code == 200
        for verb in ("get", "post"):
            path = f"/v1/jobs/job_{'a' * 26}/{'reproduce' if verb == 'get' else 'rerun'}"
            assert (await getattr(server.client, verb)(path)).status_code == 404
