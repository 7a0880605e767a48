"""What `exit.json` may hold: a pod's own programs can write it, and it must harm no other job."""

import errno
import json
import os

import pytest

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import Result
from drivetrain_schemas.pods import StopNotice
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import PodRef
from services.scheduler.launchers.directory import MAX_FILE_BYTES, PodDirectory
from services.scheduler.launchers.local import LocalLauncher
from tests.handlers.scheduler.world import World, make_submit, start

JOB = job_id_for("default", "r1")
POD = pod_id_for(JOB, 1, 0)
EXIT = {
    "pod_id": POD,
    "outcome": "succeeded",
    "ranks": [{"rank": 0, "exit_code": 0}],
    "ended_at": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def directory(tmp_path) -> PodDirectory:
    """The directory of a pod whose shim is gone."""
    made = PodDirectory(tmp_path, PodRef(JOB, 1, POD))
    made.create()
    made.close()
    return made


def with_metrics(num_series: int) -> dict:
    metrics = {f"layer_{number}".ljust(128, "x"): 1 / 3 for number in range(num_series)}
    return EXIT | {"result": {"step": 1, "metrics": metrics}}


INVALID = {
    "more series than an event can carry": json.dumps(with_metrics(3300)),
    "more bytes than are read": json.dumps(EXIT | {"detail": "x" * MAX_FILE_BYTES}),
    "a rank out of range": json.dumps(EXIT | {"first_failed_rank": 10**30}),
    "an exit code out of range": json.dumps(EXIT | {"ranks": [{"rank": 0, "exit_code": 10**30}]}),
    "nesting without end": "[" * 100_000,
    "nothing": "",
}


@pytest.mark.parametrize("content", INVALID.values(), ids=INVALID.keys())
async def test_an_exit_that_does_not_fit_fails_the_run_and_stops_nothing(
    world: World, directory: PodDirectory, content: str
):
    await start(world, retries={"limit": 0})
    (directory.path / "exit.json").write_text(content)

    world.launcher.sights[POD] = LocalLauncher(directory.path.parents[2], None)._look(directory)
    await world.rounds()

    sent = await world.emitted()
    assert [payload.kind.type for payload in sent] == [
        "run.failed",
        "allocation.released",
        "job.failed",
    ]
    assert sent[2].detail.startswith("exit.json ")


async def test_the_largest_result_fits_into_its_events(world: World):
    await world.submit(make_submit())
    await world.rounds()

    world.launcher.end(POD, result=Result.model_validate(with_metrics(256)["result"]))
    await world.rounds()

    assert "job.succeeded" in await world.types()


def test_a_pipe_and_a_directory_in_its_place_do_not_hold_the_scheduler_up(directory):
    path = directory.path / "exit.json"
    num_open = len(os.listdir("/proc/self/fd"))
    os.mkfifo(path)
    assert LocalLauncher(directory.path.parents[2], None)._look(directory).exit.outcome == "failed"
    path.unlink()
    path.mkdir()
    assert LocalLauncher(directory.path.parents[2], None)._look(directory).exit.outcome == "failed"
    assert len(os.listdir("/proc/self/fd")) == num_open


def test_a_pipe_in_place_of_the_lock_or_of_a_file_being_written_blocks_nothing(tmp_path):
    directory = PodDirectory(tmp_path, PodRef(JOB, 1, POD))
    directory.create()
    for name in ("lock", ".stop.json.partial", "stop.json"):
        os.mkfifo(directory.path / name)
    notice = StopNotice(reason="cancel", deadline_seconds=1)

    directory.write_notice(notice)

    assert (directory.path / "stop.json").read_text() == notice.model_dump_json()
    assert directory.close()
    (directory.path / "lock").unlink()
    (directory.path / "lock").symlink_to("/etc/hostname")
    assert directory.close()
    assert not (directory.path / "lock").is_symlink()


def test_trouble_of_this_machine_says_nothing_about_the_pod(directory, monkeypatch):
    (directory.path / "exit.json").write_text(json.dumps(EXIT))
    real = os.open

    def no_more_files(path, *args, **kwargs):
        if str(path).endswith("exit.json"):
            raise OSError(errno.EMFILE, "too many open files")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", no_more_files)
    with pytest.raises(OSError, match="too many"):
        LocalLauncher(directory.path.parents[2], None)._look(directory)
    monkeypatch.undo()
    assert (
        LocalLauncher(directory.path.parents[2], None)._look(directory).exit.outcome == "succeeded"
    )


def test_no_exit_is_no_exit(directory):
    assert LocalLauncher(directory.path.parents[2], None)._look(directory).sight is Sight.DEAD
