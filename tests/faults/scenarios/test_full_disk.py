"""The disk fills up while a job trains: the platform reports it, waits, and then continues."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounts import mounted
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
EXITS_THAT_ONCE_ENDED_ALL = 5


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 700 MB."""
    directory = tmp_path / "disk"
    with mounted(directory, "size=700m"):
        yield directory


def test_a_full_disk_stops_nothing_and_is_reported(small_disk: Path, tmp_path: Path) -> None:
    platform = StandalonePlatform(small_disk / "home")
    # The platform's output may be on another disk.
    platform.output = tmp_path / "output"
    platform.start()
    try:
        job = TrainingJob.submit(platform, "full-disk")
        job.wait_step(40)
        filler = small_disk / "filler"
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while file.write(b"x" * 65536):
                pass

        def printed(text: str) -> int:
            return platform.output.read_text().count(text)

        wait_until(lambda: printed("is full"), "the full disk is reported")
        # The broker exits when a log cannot be written, also during its start.
        wait_until(
            lambda: printed("kafka        ended") > EXITS_THAT_ONCE_ENDED_ALL,
            "the broker has ended more often than that",
            seconds=180,
        )
        shown = status_of(platform)
        assert "is full" in shown["warning"]
        assert shown["disk"]["space"] == "full"
        assert shown["is_running"]
        filler.unlink()
        wait_until(lambda: printed("has enough free space again"), "that is reported too")
        platform.wait_ready("kafka", other_than=-1)
        assert job.wait_final()["state"] == "succeeded"
        assert status_of(platform)["warning"] is None
    finally:
        platform.stop()


def status_of(platform: StandalonePlatform) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-m", "services.standalone", "status", "--output", "json"]
    done = subprocess.run(
        [*command, "--home", str(platform.home)], capture_output=True, text=True, check=False
    )
    content: dict[str, dict[str, str]] = json.loads(done.stdout)
    return content
