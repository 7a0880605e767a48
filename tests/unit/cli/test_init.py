"""The job.yaml that `drivetrain init` writes: right for the directory, and accepted as it is."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.documents import read_document
from drivetrain_schemas.jobs import JobSpec
from tests.unit.cli.conftest import FakePlatform, RunCli

TRAINING = """
import torch, drivetrain
with drivetrain.run(max_steps=400, hyperparameters={"lr": 5e-2, "act": "no", "n": f(1)}) as run:
    run.log(loss=1.0)
    run.log(val_accuracy=1.0)
"""
PLAIN = "import torch\nif __name__ == '__main__':\n    raise SystemExit('it was run')\n"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "my (first) model"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def written() -> dict[str, Any]:
    """What job.yaml says, if it is a job."""
    spec: dict[str, Any] = read_document(Path("job.yaml").read_bytes(), "job.yaml").value
    code = {"uri": "file:///code", "sha256": "0" * 64}
    JobSpec.model_validate({**spec, "code": code})
    return spec


def test_a_script_that_uses_drivetrain(
    cli: RunCli, platform: FakePlatform, directory: Path
) -> None:
    for name, source in (("model.py", ""), ("train.py", TRAINING), ("evaluate.py", PLAIN)):
        (directory / name).write_text(source)
    (directory / "requirements.txt").touch()
    ran = cli("init")
    assert (ran.code, ran.out) == (0, "wrote job.yaml\n")
    assert "other programs here: evaluate.py" in ran.err
    assert "requirements.txt is not installed" in ran.err
    assert written() == {
        "name": "my -first- model",
        "command": "python train.py",
        "code": ".",
        "resources": {"devices": 1},
        "max_steps": 400,
        "hyperparameters": {"lr": 0.05, "act": "no"},
        "metric": {"name": "val_accuracy", "goal": "maximize"},
        "checkpoint": {"every_minutes": 5, "keep_last": 3, "keep_best": 1},
        "retries": {"limit": 5},
    }
    assert platform.requests == []
    again = cli("init")
    assert (again.code, "exists already" in again.err) == (2, True)


def test_a_plain_script_is_read_and_not_run(cli: RunCli, directory: Path) -> None:
    (directory / "finetune.py").write_text(PLAIN)
    (directory / "broken.py").write_text("if")
    assert cli("init").code == 0
    assert written()["command"] == "python finetune.py"
    text = Path("job.yaml").read_text()
    assert "docs/guides/port-your-script.md" in text
    assert "from the beginning" not in text  # it may have checkpoints of its own


def test_a_shell_script_that_drives_the_training_is_the_command(
    cli: RunCli, directory: Path
) -> None:
    (directory / "train.py").write_text(TRAINING)
    (directory / "run.sh").write_text("python train.py --big\n")
    (directory / "setup.sh").write_text("echo train.py\n")
    assert "other programs here: train.py" in cli("init").err
    assert (written()["command"], written()["max_steps"]) == ("bash run.sh", 400)


def test_the_options_of_lightning_are_no_metrics(cli: RunCli, directory: Path) -> None:
    logs = "class Net(Module):\n    def step(self):\n        self.log('loss', 1, on_epoch=True)\n"
    (directory / "train.py").write_text(f"import drivetrain, lightning\n{logs}")
    assert cli("init").code == 0
    assert "metric" not in written()


def test_when_a_script_saves_is_not_overridden(cli: RunCli, directory: Path) -> None:
    source = "import drivetrain\nwith drivetrain.run(max_steps=9, checkpoint_every_steps=3): ..."
    (directory / "train.py").write_text(source)
    assert cli("init").code == 0
    assert written()["checkpoint"] == {"keep_last": 3, "keep_best": 0}


def test_the_script_may_be_named(cli: RunCli, directory: Path) -> None:
    (directory / "a.py").write_text(PLAIN)
    (directory / "b.py").write_text(PLAIN)
    assert cli("init", "c.py").code == 2
    assert cli("init", "b.py").code == 0
    assert written()["command"] == "python b.py"


@pytest.mark.parametrize(("file", "command"), [("go.sh", "bash go.sh"), (None, "python train.py")])
def test_a_directory_without_python(
    cli: RunCli, directory: Path, file: str | None, command: str
) -> None:
    if file:
        (directory / file).touch()
    assert cli("init").code == 0
    assert written()["command"] == command
