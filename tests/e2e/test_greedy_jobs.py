"""Jobs that take all that they can get of one machine: they fail, others and the platform go on."""

import os
import tempfile
from pathlib import Path

import pytest

from services.runtime import cgroups
from tests.mounts import mounted
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

MIB = 1024**2
ONE = {"resources": {"devices": 1}, "retries": {"limit": 0}}
TAKES_MEMORY = "taken = [bytes([1]) * 2**20 for _ in range(900)]"
FILLS_TMP = """
import tempfile
file = tempfile.NamedTemporaryFile(delete=False)
for _ in range(64):
    file.write(bytes(2**20))
"""


@pytest.mark.skipif(bool(cgroups.why_none()), reason=f"no limit here: {cgroups.why_none()}")
@pytest.mark.heavy
def test_a_job_over_its_memory_fails_with_the_reason_and_alone(
    platform: StandalonePlatform,
) -> None:
    other = TrainingJob.submit(platform, "beside-greedy-memory", **ONE)
    other.wait_step(1)
    limits = {"resources": {"devices": 1, "memory_bytes": 300 * MIB}}
    greedy = TrainingJob.submit(platform, "greedy-memory", TAKES_MEMORY, **ONE | limits)
    failed = greedy.wait_final()
    assert (failed["state"], failed["attempt"]) == ("failed", 1)
    assert failed["detail"] == (
        "rank 0 was killed because its pod used more than its 0.293 GiB (resources.memory_bytes)"
    )
    assert other.wait_final()["state"] == "succeeded"


@pytest.mark.heavy
def test_a_full_tmp_fails_the_job_that_filled_it_and_nothing_else(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as place,
        mounted(small := Path(place, "tmp"), "size=16m,mode=1777"),
    ):
        os.chmod(place, 0o755)  # Postgres runs as another user
        platform = StandalonePlatform(tmp_path / "home", outside={"TMPDIR": str(small)})
        platform.start()
        try:
            filler = TrainingJob.submit(platform, "fills-tmp", FILLS_TMP, **ONE)
            failed = filler.wait_final()
            assert failed["state"] == "failed"
            assert failed["detail"] == "OSError: [Errno 28] No space left on device"
            # What it wrote is still there.
            assert TrainingJob.submit(platform, "after-it", **ONE).wait_final()["state"] == (
                "succeeded"
            )
            assert {part["restarts"] for part in platform.parts().values()} == {0}
        finally:
            platform.stop()
