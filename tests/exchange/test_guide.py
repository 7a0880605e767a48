"""The commands of the guide, on a running platform, and what the tools read of its exports."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from tests.exchange.mlflow_server import MlflowServer, run_with_tools
from tests.exchange.test_files import READ_EVENTS, READ_LINEAGE, READ_TABLES
from tests.exchange.test_mlflow import READ as READ_MLFLOW
from tests.guides import blocks, section
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

pytestmark = pytest.mark.timeout(900)
GUIDE = "log-compare-export.md"
SCRIPT = """
import json, pathlib
import torch
import drivetrain
with drivetrain.run(hyperparameters={"learning_rate": 0.1, "momentum": 0.0}) as run:
    model = run.parallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=run.hyperparameters["learning_rate"])
    run.resume(model=model, optimizer=optimizer)
    for _ in run.steps():
        loss = model(torch.ones(1, 2)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        run.log({"loss": loss, "val, mAP@0.5": run.step / 10})
        (pathlib.Path(run.directory) / "config.json").write_text(json.dumps({"width": 2}))
"""


@pytest.fixture(scope="module")
def trained(platform: StandalonePlatform) -> TrainingJob:
    job = TrainingJob.submit(
        platform,
        "digits",
        SCRIPT,
        max_steps=40,
        resources={"devices": 1},
        checkpoint={"every_steps": 20},
        metric={"name": "loss", "goal": "minimize"},
        project="vision",
        hyperparameters={"learning_rate": 0.1},
    )
    assert job.wait_final()["state"] == "succeeded", job.timeline()[-5:]
    return job


def commands_of_the_guide() -> list[str]:
    headings = ("Compare", "Export")
    texts = [block for heading in headings for block in blocks(section(GUIDE, heading))]
    commands = [line for text in texts for line in text.splitlines()]
    assert len(commands) == 11
    return [one for one in commands if " compare " not in one]  # of several


def run(platform: StandalonePlatform, folder: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", *shlex.split(command)[1:]],
        cwd=folder,
        env={**os.environ, "DRIVETRAIN_HOME": str(platform.home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture(scope="module")
def exported(
    platform: StandalonePlatform,
    trained: TrainingJob,
    mlflow: MlflowServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder in which the guide's commands were run."""
    folder = tmp_path_factory.mktemp("guide")
    for command in commands_of_the_guide():
        if "--hf" not in command:
            run(platform, folder, command.replace("http://localhost:5000", mlflow.url))
    return folder


def test_every_tool_reads_what_the_platform_has(
    tools: Path, exported: Path, trained: TrainingJob, mlflow: MlflowServer
) -> None:
    path = f"/v1/jobs/{trained.job_id}/metrics"
    stored = trained.platform.get(path, name=["loss", "val, mAP@0.5"])["series"]
    assert [len(one["steps"]) for one in stored.values()] == [40, 40]
    files = str(exported / "samples.csv"), str(exported / "samples.parquet")
    rows = run_with_tools(tools, READ_TABLES, *files)
    (events,) = (exported / "logs").iterdir()
    scalars = run_with_tools(tools, READ_EVENTS, str(events))["scalars"]
    (found,) = run_with_tools(tools, READ_MLFLOW, mlflow.url, "vision")
    histories = {name.partition("-")[0]: history for name, history in found["metrics"].items()}
    for name, of_mlflow in (("loss", "loss"), ("val, mAP@0.5", "val_ mAP_0.5")):
        pairs = list(zip(stored[name]["steps"], stored[name]["values"], strict=True))
        assert [(row[4], float(row[6])) for row in rows if row[3] == name] == pairs
        assert [(step, float(value)) for step, value, _ in histories[of_mlflow]] == pairs
        assert [step for step, _, _ in scalars[name]] == stored[name]["steps"]
    began, ended = found["start"] / 1000, found["end"] / 1000
    assert all(began <= at <= ended for _, _, at in scalars["loss"])
    assert found["status"] == "FINISHED"
    # The second one is named by the script alone.
    assert found["params"] == {"learning_rate": "0.1", "momentum": "0.0"}
    assert "files/config.json" in found["files"]
    assert run_with_tools(tools, READ_LINEAGE, str(exported / "events.jsonl")) is True


def test_the_folder_of_hugging_faces_style_loads(tmp_path: Path, trained: TrainingJob) -> None:
    (command,) = (one for one in commands_of_the_guide() if "--hf" in one)
    run(trained.platform, tmp_path, command)
    folder = tmp_path / "digits-model"
    assert sorted(one.name for one in folder.iterdir()) == [
        *("README.md", "config.json", "model.safetensors", "trainer_state.json")
    ]
    weights = load_file(folder / "model.safetensors")
    assert {name: tuple(one.shape) for name, one in weights.items()} == {
        "weight": (1, 2),
        "bias": (1,),
    }
    assert json.loads((folder / "config.json").read_text()) == {"width": 2}
    history = json.loads((folder / "trainer_state.json").read_text())
    best = trained.state()["best"]
    assert history["global_step"] == best["step"]
    assert history["log_history"][-1]["step"] == best["step"]
    assert history["log_history"][-1]["loss"] == best["value"]
    card = (folder / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["tags"] == ["drivetrain"]
    assert "| learning\\_rate | 0.1 |" in card
    assert trained.job_id.replace("_", "\\_") in card
