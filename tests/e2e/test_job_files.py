"""A program that uses no SDK writes files, is killed, finds them again, and they are downloaded."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

# The first attempt leaves a file and is killed; the second needs that file.
PROGRAM = (
    "if [ $DRIVETRAIN_ATTEMPT = 1 ]; then mkdir out; echo 1 > out/state; kill -9 $$; fi;"
    " grep 1 out/state && echo weights > model.pt"
)


def drivetrain(platform: StandalonePlatform, directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", *arguments],
        cwd=directory,
        env={**os.environ, "DRIVETRAIN_HOME": str(platform.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_of_a_killed_program_are_found_again_and_downloaded(
    platform: StandalonePlatform, tmp_path: Path
) -> None:
    spec = {
        "name": "files",
        "command": ["sh", "-c", PROGRAM],
        "resources": {"devices": 1},
        "retries": {"limit": 2, "backoff_seconds": 0.1},
    }
    with platform.client() as client:
        answer = client.post("/v1/jobs", json={"spec": spec})
    job = TrainingJob(platform, answer.json()["job_id"])
    state = job.wait_final()
    assert (state["state"], state["attempt"]) == ("succeeded", 2), job.timeline()[-5:]

    def last_saved() -> dict[str, Any] | None:
        saved = [one for one in job.events("files.saved") if one["attempt"] == 2]
        return saved[0] if saved else None

    saved = wait_until(last_saved, "the files are announced", seconds=90)
    assert saved["files"]["num_files"] == 2
    beginning = "attempt 2 begins with 1 file that was saved before"
    told = wait_until(lambda: job.events("run.warned"), "the beginning is told")
    assert [(one["warning"], one["detail"]) for one in told] == [("begins_with", beginning)]
    with platform.client() as client:
        head, _, timeline = client.get(f"/jobs/{job.job_id}").text.partition('id="timeline"')
    assert beginning in head
    assert beginning.capitalize() in timeline
    assert beginning in drivetrain(platform, tmp_path, "job", "show", job.job_id)
    listed = drivetrain(platform, tmp_path, "job", "files", job.job_id)
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["model.pt", "out/state"]
    drivetrain(platform, tmp_path, "job", "download", job.job_id)
    assert (tmp_path / job.job_id / "model.pt").read_text() == "weights\n"
    assert (tmp_path / job.job_id / "out/state").read_text() == "1\n"
