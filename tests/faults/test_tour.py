"""A series of failures that meets two jobs at once; `make test-faults` runs every scenario alone.

Both jobs must end with the losses, weights and charges of one that nothing has disturbed.
"""

from pathlib import Path

import pytest

from drivetrain_schemas.topics import SERVICES
from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


def test_two_jobs_survive_a_series_of_failures(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll, tmp_path: Path
) -> None:
    hurry = tmp_path / "hurry"
    slowly = {
        "hyperparameters": {"pause_seconds": 0.3, "hurry": str(hurry)},
        "checkpoint": {"every_steps": 10, "keep_last": 3},
    }
    steady, struck = submit(**slowly), submit(**slowly)
    for job in (steady, struck):
        job.wait_for_strike()

    strikes.kill_parts_during(steady, SERVICES)
    strikes.kill_parts_during(steady, ["kafka", "postgres"])
    strikes.kill_gang(struck)
    wait_until(lambda: restored(struck), "the gang goes on", seconds=60)
    make_room_for_another(struck, submit)
    strikes.kill_everything(platform, steady, struck)
    hurry.touch()

    check_all(steady, attempts=2)
    check_all(struck, attempts=4)


def make_room_for_another(job: TrainingJob, submit: Submit) -> None:
    """A paused job leaves its slots to another, and goes on from the step at which it paused."""
    change(job, "pause")
    wait_until(lambda: job.state()["state"] == "paused", "the job is paused", seconds=60)
    assert job.ranks(attempt=2) == []
    assert submit(max_steps=3).wait_final()["state"] == "succeeded"
    assert job.state()["state"] == "paused"
    change(job, "resume")
    (paused,) = job.events("job.paused")
    wait_until(lambda: len(restored(job)) == 2, "the paused job goes on", seconds=60)
    assert restored(job)[-1] == paused["step"]


def restored(job: TrainingJob) -> list[int]:
    return [event["step"] for event in job.events("checkpoint.restored")]


def test_a_job_that_is_stopped_without_a_checkpoint_leaves_none_of_its_last_step(
    submit: Submit,
) -> None:
    job = submit()
    job.wait_for_strike()
    change(job, "stop", reason="poor", checkpoint=False)
    wait_until(lambda: job.state()["finished_at"], "the job ends", seconds=60)
    state = job.state()
    assert (state["state"], state["detail"]) == ("stopped", "poor")
    assert state["result"]["step"] > 0
    saved = [event["step"] for event in job.events("checkpoint.committed")]
    assert all(step % 40 == 0 for step in saved)


def change(job: TrainingJob, verb: str, **body: object) -> None:
    with job.platform.client() as client:
        answer = client.post(f"/v1/jobs/{job.job_id}/{verb}", json=body or None)
    assert answer.status_code == 202, answer.text
