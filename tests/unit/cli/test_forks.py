"""A job like another one, which continues from one of its checkpoints."""

import json

from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID, make_job

CHECKPOINT_ID = "ckpt_" + "c" * 26
NAME = "f000000000017-s000000000200-1f2e3d4c"
SPEC = {"name": "digits", "command": ["true"], "hyperparameters": {"lr": 0.05}}


def serve(platform: FakePlatform) -> None:
    checkpoint = {
        "checkpoint_id": CHECKPOINT_ID,
        "step": 200,
        "is_latest": True,
        "is_best": False,
        "manifest_key": f"checkpoints/default/{JOB_ID}/{NAME}/manifest.json",
    }
    platform.on("GET", f"/v1/jobs/{JOB_ID}", {**make_job("succeeded", 400), "spec": SPEC})
    platform.on("GET", f"/v1/jobs/{JOB_ID}/checkpoints", {"checkpoints": [checkpoint]})
    platform.on("POST", f"/v1/checkpoints/{CHECKPOINT_ID}/pin", {"is_confirmed": True})
    platform.on("POST", "/v1/jobs", make_job(job_id="job_" + "z" * 26))


def test_a_fork_pins_its_checkpoint_and_takes_new_values(
    cli: RunCli, platform: FakePlatform
) -> None:
    serve(platform)
    ran = cli("job", "fork", JOB_ID, "--from", "200", "--set", "lr=0.1", "--set", "name=forked")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("job_zzzz")
    (sent,) = platform.bodies("/v1/jobs")
    assert sent["spec"] == {
        "name": "forked",
        "command": ["true"],
        "hyperparameters": {"lr": 0.1},
        "start_from": {"job_id": JOB_ID, "checkpoint": NAME},
    }
    paths = [one.url.path for one in platform.requests]
    assert paths.index(f"/v1/checkpoints/{CHECKPOINT_ID}/pin") < paths.index("/v1/jobs")
    assert "learning rate" in ran.err


def test_an_invalid_value_sends_nothing(cli: RunCli, platform: FakePlatform) -> None:
    serve(platform)
    ran = cli("job", "fork", JOB_ID, "--set", "resources.devices=0")
    assert (ran.code, "resources.devices" in ran.err) == (2, True)
    assert {one.method for one in platform.requests} == {"GET"}
    assert json.dumps(platform.bodies("/v1/jobs")) == "[]"
