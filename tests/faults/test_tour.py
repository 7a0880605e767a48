"""A series of failures on one platform; `make test-faults` runs every scenario.

The tests are independent and run in any order.
"""

from typing import Any

import pytest

from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


def test_every_service_is_killed_in_one_job(submit: Submit, check_all: CheckAll) -> None:
    job = submit(hyperparameters={"pause_seconds": 0.17})
    job.wait_for_strike()
    strikes.kill_every_service(job)
    check_all(job, attempts=1)


@pytest.mark.parametrize("part", ["kafka", "postgres"])
def test_the_infrastructure_is_killed(part: str, submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_part_during(job, part)
    check_all(job, attempts=1)


def test_the_whole_gang_is_killed(submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_gang(job)
    check_all(job, attempts=2)


def test_everything_is_killed_at_once(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    strikes.kill_everything(platform, job)
    check_all(job, attempts=2)


def test_a_paused_job_leaves_its_slots_to_another_and_goes_on_as_if_undisturbed(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    _change(job, "pause")
    wait_until(lambda: job.state()["state"] == "paused", "the job is paused", seconds=60)
    assert job.ranks() == []
    paused_at = job.events("job.paused")[0]["step"]
    other = submit(max_steps=3)
    assert other.wait_final()["state"] == "succeeded"
    assert job.state()["state"] == "paused"
    _change(job, "resume")
    check_all(job, attempts=2)
    assert [event["step"] for event in job.events("checkpoint.restored")] == [paused_at]
    assert job.events("job.retrying") == []


def test_a_job_that_is_stopped_without_a_checkpoint_leaves_none_of_its_last_step(
    submit: Submit,
) -> None:
    job = submit()
    job.wait_for_strike()
    _change(job, "stop", reason="poor", checkpoint=False)
    wait_until(lambda: job.state()["finished_at"], "the job ends", seconds=60)
    state = job.state()
    assert (state["state"], state["detail"]) == ("stopped", "poor")
    assert state["result"]["step"] > 0
    saved = [event["step"] for event in job.events("checkpoint.committed")]
    assert all(step % 40 == 0 for step in saved)


def test_a_search_hears_of_each_rung_once_and_pauses_and_promotes_its_trials(
    platform: StandalonePlatform,
) -> None:
    metric = {"name": "loss", "goal": "minimize"}
    few = {"max_steps": 60, "resources": {"devices": 1}, "checkpoint": {"every_steps": 10}}
    spec = {
        "name": "asha",
        "job": TrainingJob.spec(platform, "asha", metric=metric, **few),
        "space": {"pause_seconds": {"type": "uniform", "low": 0.03, "high": 0.08}},
        "max_trials": 4,
        "max_parallel_trials": 2,
        "pruner": {"type": "asha", "min_steps": 10, "reduction_factor": 2, "mode": "pause"},
    }
    with platform.client() as client:
        study_id = client.post("/v1/studies", json={"spec": spec}).json()["study_id"]

    def ended() -> dict[str, Any] | None:
        study = platform.get(f"/v1/studies/{study_id}")
        return study if study["finished_at"] else None

    study = wait_until(ended, "the study ends", seconds=180, every=0.5)
    assert study["state"] == "completed"
    jobs = [TrainingJob(platform, trial["job_id"]) for trial in study["trials"]]
    rungs = [[event["step"] for event in job.events("trial.measured")] for job in jobs]
    assert len(rungs) == 4
    assert all(found == [10, 20, 40][: len(found)] for found in rungs)
    assert all(found for found in rungs)
    promoted = [job for job in jobs if job.events("job.resumed")]
    assert promoted, "a trial was paused, and goes on from its checkpoint"
    assert all(job.events("checkpoint.restored") for job in promoted)


def _change(job: TrainingJob, verb: str, **body: object) -> None:
    with job.platform.client() as client:
        answer = client.post(f"/v1/jobs/{job.job_id}/{verb}", json=body or None)
    assert answer.status_code == 202, answer.text
