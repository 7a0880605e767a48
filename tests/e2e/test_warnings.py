"""What a program does in vain is a warning in its log, on its page and in the command line."""

from typing import Any

from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

LOOP = """import drivetrain
with drivetrain.run(max_steps=3) as run:
    for number in run.steps():
        run.log({"accuracy\\u200b": 0.5}, loss=1.0)
"""


def warnings(platform: StandalonePlatform, **fields: Any) -> dict[str, str]:
    """The details of the warnings of this job by their kind, as shown everywhere."""
    spec = {
        "name": "in-vain",
        "metric": {"name": "accuracy", "goal": "maximize"},
        "checkpoint": {"every_steps": 2},
        **fields,
    }
    with platform.client() as client:
        answer = client.post("/v1/jobs", json={"spec": spec})
        assert answer.status_code in (201, 202), answer.text
        job = TrainingJob(platform, answer.json()["job_id"])
        assert job.wait_final()["state"] == "succeeded"

        def found() -> dict[str, str]:
            shown = client.get(f"/v1/jobs/{job.job_id}/explain").json()["warnings"]
            return {one["warning"]: one["detail"] for one in shown}

        # The events of the warnings may arrive after that of the end.
        told = wait_until(lambda: found() if len(found()) >= 3 else None, "three warnings")
        page = client.get(f"/jobs/{job.job_id}").text.partition('id="timeline"')[0]
        log = client.get(f"/jobs/{job.job_id}/log.txt").text
    assert page.count("<strong>warning</strong>") == len(told)
    for detail in told.values():
        assert log.count(detail) == 1
    return told


def test_of_a_program_with_the_package(platform: StandalonePlatform) -> None:
    told = warnings(platform, command=["python", "-c", LOOP])
    assert told.keys() == {"no_resume", "refused_samples", "metric_missing"}
    assert "'accuracy\\u200b' is not the name of a metric" in told["refused_samples"]
    assert told["metric_missing"].endswith("the program has logged 'loss'")


def test_of_any_other_program(platform: StandalonePlatform) -> None:
    told = warnings(platform, command=["sleep", "0.1"], resources={"devices": 2})
    assert told.keys() == {"ranks_apart", "policy_unused", "metric_missing"}
    assert "checkpoint.every_steps has had no effect" in told["policy_unused"]
