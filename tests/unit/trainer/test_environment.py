"""The environment of a rank."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain import environment
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSpec

JOB = job_id_for("default", "test")
IN_A_POD = {
    "DRIVETRAIN_TENANT_ID": "default",
    "DRIVETRAIN_JOB_ID": JOB,
    "DRIVETRAIN_RUN_ID": "run_x",
    "DRIVETRAIN_ATTEMPT": "2",
    "DRIVETRAIN_FENCE": "41",
    "DRIVETRAIN_POD_DIRECTORY": "/pods/x",
    "DRIVETRAIN_CONTROL_SOCKET": "/pods/x/control.sock",
    "DRIVETRAIN_JOB_SPEC": JobSpec(name="a", command=("x",), seed=5).model_dump_json(),
    "DRIVETRAIN_OBJECT_STORE_URL": "s3://bucket/root",
    "DRIVETRAIN_CHECKPOINT_URL": f"s3://bucket/root/checkpoints/default/{JOB}",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
}


def test_a_rank_in_a_pod() -> None:
    read = environment.read(IN_A_POD)
    assert not read.is_local
    assert (read.rank, read.world_size, read.fence) == (1, 2, 41)
    assert read.job is not None
    assert read.job.seed == 5
    assert read.manifest_prefix == f"checkpoints/default/{JOB}/"


def test_a_field_of_a_newer_platform_is_ignored() -> None:
    spec = json.loads(IN_A_POD["DRIVETRAIN_JOB_SPEC"]) | {"of_tomorrow": 1}
    read = environment.read(IN_A_POD | {"DRIVETRAIN_JOB_SPEC": json.dumps(spec)})
    assert read.job is not None
    assert read.job.seed == 5


def test_under_torchrun_a_run_is_local() -> None:
    read = environment.read({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})
    assert read.is_local
    assert (read.rank, read.world_size) == (1, 4)


def test_a_local_run_keeps_its_checkpoints_below_its_directory() -> None:
    placed = environment.in_directory(environment.read({}), Path("/work/runs/train/3"), attempt=2)
    assert placed.checkpoint_url == "file:///work/runs/train/3/checkpoints"
    assert placed.manifest_prefix == "checkpoints/"
    assert (placed.attempt, placed.fence) == (2, 2)
    assert placed.run_id.endswith("_2")


@pytest.mark.parametrize(
    ("existing", "complete", "want"),
    [
        ([], [], "1"),
        (["1", "2"], ["1"], "2"),
        (["1", "2"], ["1", "2"], "3"),
        (["1", "2"], ["2"], "3"),
        (["notes"], [], "1"),
    ],
    ids=[
        "first",
        "continues",
        "a new one after a complete one",
        "nothing before a complete one",
        "other names do not count",
    ],
)
def test_a_local_run_continues_until_it_is_complete(
    tmp_path: Path, monkeypatch, existing, complete, want
) -> None:
    monkeypatch.setattr("sys.argv", ["dir/train.py"])
    for name in existing:
        (tmp_path / "train" / name).mkdir(parents=True)
    for name in complete:
        (tmp_path / "train" / name / "result.json").touch()
    assert environment.choose_local_directory(tmp_path) == tmp_path / "train" / want


HOLD = """
import sys
from pathlib import Path
from drivetrain import environment
sys.argv = ["train.py"]
print(environment.choose_local_directory(Path(sys.stdin.readline().strip())).name, flush=True)
sys.stdin.read()
"""


def test_concurrent_local_runs_have_separate_directories(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(f"{tmp_path}\n")
        other.stdin.flush()
        assert other.stdout.readline() == "1\n"
        assert environment.choose_local_directory(tmp_path) == tmp_path / "train" / "2"
        other.kill()
    (tmp_path / "train" / "2").rename(tmp_path / "elsewhere")
    assert environment.choose_local_directory(tmp_path) == tmp_path / "train" / "1"
