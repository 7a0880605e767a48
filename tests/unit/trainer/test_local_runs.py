"""Which directory a local run continues in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain import local_runs


def choose(root: Path, seed: int | None = None, **hyperparameters: object) -> Path:
    experiment = local_runs.this_experiment(hyperparameters, seed)
    return local_runs.choose_directory(root, experiment)


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
    assert choose(tmp_path) == tmp_path / "train" / want


HOLD = """
import sys
from pathlib import Path
from drivetrain import local_runs
sys.argv = ["train.py"]
root = Path(sys.stdin.readline().strip())
experiment = local_runs.this_experiment({}, None)
print(local_runs.choose_directory(root, experiment).name, flush=True)
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
        assert choose(tmp_path) == tmp_path / "train" / "2"
        other.kill()
    (tmp_path / "train" / "2").rename(tmp_path / "elsewhere")
    assert choose(tmp_path) == tmp_path / "train" / "1"


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (["train.py", "--lr", "1"], {"rate": 0.1}, None),
        (["train.py", "--lr", "1"], {"rate": 0.2}, "hyperparameters.rate 0.1, this one 0.2"),
        (["train.py", "--lr", "2"], {"rate": 0.1}, "arguments ['--lr', '1'], this one"),
        (["other/train.py", "--lr", "1"], {"rate": 0.1}, "script 'train.py', this one"),
        (["train.py", "--lr", "1"], {"rate": 0.1, "seed": 3}, "seed None, this one 3"),
        (["train.py", "--lr", "1"], {}, "hyperparameters.rate 0.1, this one None"),
    ],
)
def test_only_the_same_experiment_is_continued(
    tmp_path: Path, monkeypatch, caplog, arguments, options, said
) -> None:
    caplog.set_level("INFO", "drivetrain")
    monkeypatch.setattr("sys.argv", ["train.py", "--lr", "1"])
    first = choose(tmp_path, rate=0.1)
    monkeypatch.setattr("sys.argv", arguments)
    second = choose(tmp_path, **options)
    assert (second == first) == (said is None)
    if said is not None:
        assert f"{first} is not continued: it has {said}" in caplog.text
        monkeypatch.setattr("sys.argv", ["train.py", "--lr", "1"])
        assert choose(tmp_path, rate=0.1) == first


def test_a_run_of_an_earlier_version_is_continued_and_identified(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    (tmp_path / "train" / "1").mkdir(parents=True)
    directory = choose(tmp_path, rate=0.1)
    assert directory.name == "1"
    assert json.loads((directory / "experiment.json").read_text())["hyperparameters"] == {
        "rate": 0.1
    }
