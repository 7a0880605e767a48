"""The examples work: the script runs on its own, and the specs match it."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from drivetrain.cli.gateway import Gateway
from drivetrain.cli.specs import load_job, load_study
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pruners import AshaPruner
from drivetrain_schemas.studies import StudySpec

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "01-digits" / "train.py"
# The script as it is, but for the number of steps; says which hyperparameters it has.
THREE_STEPS = """
import json, runpy, sys, drivetrain
run = drivetrain.run
def run_shortly(**options):
    print(json.dumps(options["hyperparameters"]))
    return run(**options | {"max_steps": 3})
drivetrain.run = run_shortly
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], dict[str, float]]:
    """The hyperparameters of the script, and the metrics of three steps."""
    directory = tmp_path_factory.mktemp("digits")
    ended = subprocess.run(
        [sys.executable, "-c", THREE_STEPS, str(SCRIPT)],
        check=False,
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads((directory / "runs" / "train" / "1" / "result.json").read_text())
    assert result["step"] == 3
    return json.loads(ended.stdout.splitlines()[0]), result["metrics"]


@pytest.fixture
def gateway() -> Gateway:
    upload = Mock(return_value={"uri": "file:///code", "sha256": "0" * 64})
    return Mock(spec=Gateway, upload=upload)


def test_the_job_fits_its_script(trained, gateway: Gateway) -> None:
    hyperparameters, metrics = trained
    job = JobSpec.model_validate(load_job(str(SCRIPT.with_name("job.yaml")), [], gateway))
    assert job.hyperparameters.keys() <= hyperparameters.keys()
    assert job.metric is not None
    assert job.metric.name in metrics


def test_the_study_has_twelve_trials_and_fits_its_script(trained, gateway: Gateway) -> None:
    hyperparameters, metrics = trained
    file = EXAMPLES / "02-study" / "study.yaml"
    study = StudySpec.model_validate(load_study(str(file), [], gateway))
    assert study.max_trials == 12
    assert study.job.command == ("python", SCRIPT.name)
    assert study.job.code is not None
    assert study.space.keys() <= hyperparameters.keys()
    assert study.job.metric is not None
    assert study.job.metric.name in metrics


def test_the_trials_are_judged_at_steps_that_log_the_metric(gateway: Gateway) -> None:
    file = EXAMPLES / "02-study" / "study.yaml"
    study = StudySpec.model_validate(load_study(str(file), [], gateway))
    assert isinstance(study.pruner, AshaPruner)
    [every] = re.findall(r"^EVALUATE_EVERY = (\d+)$", SCRIPT.read_text(), re.MULTILINE)
    assert study.pruner.min_steps % int(every) == 0
    assert study.job.max_steps == study.pruner.min_steps * study.pruner.reduction_factor**2


def test_the_saving_compares_stopped_trials_with_the_mean_of_complete_ones() -> None:
    saving = runpy.run_path(str(EXAMPLES / "02-study" / "saving.py"))["saving"]
    assert saving([("completed", 30.0), ("completed", 50.0), ("stopped", 10.0)]) == (
        "90 device-seconds, 1 of 3 trials stopped early; all to the end: 120 (25% saved)"
    )
    assert "no trial stopped early" in saving([("completed", 30.0), ("failed", 1.0)])
