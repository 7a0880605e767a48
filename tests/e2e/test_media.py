"""What a program logs besides numbers, and says of itself, on a running platform."""

import json
from typing import Any

from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

LOOP = """import drivetrain
with drivetrain.run(max_steps=3, seed=11) as run:
    run.use_data("s3://bucket/digits", version="v3")
    for number in run.steps():
        run.log(loss=1.0)
        run.log_text("said", f"at {run.step}")
        run.log_table("rows", [{"step": run.step}])
    run.log_text("bad\\0name", "left out")
"""


def test_media_and_surroundings_of_a_job_are_read_back(platform: StandalonePlatform) -> None:
    with platform.client() as client:

        def get(path: str, **query: Any) -> Any:
            answer = client.get(f"/v1/jobs/{job.job_id}/{path}", params=query)
            assert answer.status_code == 200, answer.text
            return answer

        spec = {"name": "says", "command": ["python", "-c", LOOP], "project": "media"}
        made = client.post("/v1/jobs", json={"spec": spec}).json()
        job = TrainingJob(platform, made["job_id"])
        assert job.wait_final()["state"] == "succeeded"
        named = wait_until(
            lambda: found if len(found := get("media").json()["names"]) == 2 else None,
            "two names",
        )
        assert [(one["name"], one["num_steps"]) for one in named] == [("rows", 3), ("said", 3)]
        items = get("media/items", name="rows").json()["items"]
        assert json.loads(client.get(items[-1]["content_url"]).content)["rows"] == [[3]]
        text = get("media/content", name="said", step=2)
        assert text.content == b"at 2"
        assert text.headers["content-security-policy"] == "default-src 'none'; sandbox"

        found = wait_until(
            lambda: told if (told := get("reproduce").json())["surroundings"] else None,
            "the surroundings",
        )
        assert found["seed"] == 11
        assert found["surroundings"]["data"][0]["version"] == "v3"
        assert "torch" in [one["name"] for one in found["surroundings"]["packages"]]
        again = client.post(f"/v1/jobs/{job.job_id}/rerun").json()
        assert again["spec"]["rerun_of"] == job.job_id
        assert TrainingJob(platform, again["job_id"]).wait_final()["state"] == "succeeded"
