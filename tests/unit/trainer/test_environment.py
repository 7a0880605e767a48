"""The environment of a rank."""

import json
from pathlib import Path

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
