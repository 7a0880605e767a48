"""A killed run continues with the same result: equal weights, bit for bit."""

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.trainer.ranks import train

OLD_RUN = Path(__file__).parent / "checkpoints" / "format-1"


Weights = Callable[[str, int], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The weights of an uninterrupted run, by script and number of ranks."""

    @cache
    def weights(script: str, ranks: int) -> dict[str, torch.Tensor]:
        directory = tmp_path_factory.mktemp("undisturbed")
        ended = train(script, directory, ranks, WEIGHTS=directory / "weights")
        assert ended.exit_codes == (0,) * ranks, ended.output
        return torch.load(directory / "weights")

    return weights


def assert_equal(weights: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert weights.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.parametrize(
    ("script", "ranks", "kill_at", "kill_rank", "least_step", "workers"),
    [
        pytest.param("by_steps.py", 1, 37, 0, 30, 0, id="one rank, within a pass"),
        pytest.param(
            "by_steps.py", 1, 47, 0, 40, 2, id="loaded by worker processes", marks=pytest.mark.heavy
        ),
        pytest.param(
            "by_steps.py",
            2,
            37,
            1,
            30,
            0,
            id="rank 1 of two",
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            "by_steps.py",
            2,
            59,
            0,
            50,
            0,
            id="rank 0 of two, near the end",
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            "by_epochs.py",
            2,
            8,
            1,
            6,
            0,
            id="by epochs, accumulating, within a pass",
            marks=pytest.mark.heavy,
        ),
    ],
)
def test_weights_after_a_kill_equal_those_of_an_uninterrupted_run(
    undisturbed, tmp_path: Path, script, ranks, kill_at, kill_rank, least_step, workers
) -> None:
    variables = {"WEIGHTS": tmp_path / "weights", "WORKERS": workers}
    killed = train(script, tmp_path, ranks, KILL_AT=kill_at, KILL_RANK=kill_rank, **variables)
    assert killed.exit_codes[kill_rank] == -9, killed.output
    assert not (tmp_path / "weights").exists()

    resumed = train(script, tmp_path, ranks, **variables)

    assert resumed.exit_codes == (0,) * ranks, resumed.output
    steps = [int(step) for step in re.findall(r"begins after step (\d+)", resumed.output)]
    assert len(set(steps)) == 1
    assert least_step <= steps[0] < kill_at
    assert_equal(torch.load(tmp_path / "weights"), undisturbed(script, ranks))


def test_ranks_stop_at_the_same_step_and_continue_from_it(undisturbed, tmp_path: Path) -> None:
    variables = {"WEIGHTS": tmp_path / "weights"}
    stopped = train("by_steps.py", tmp_path, 2, STOP_AT=23, KILL_RANK=1, **variables)
    assert stopped.exit_codes == (75, 75), stopped.output
    steps = set(re.findall(r"interrupted: .* at step (\d+)", stopped.output))
    assert len(steps) == 1
    assert 23 <= int(next(iter(steps))) < 60

    resumed = train("by_steps.py", tmp_path, 2, **variables)

    assert f"begins after step {next(iter(steps))} (True)" in resumed.output
    assert_equal(torch.load(tmp_path / "weights"), undisturbed("by_steps.py", 2))


def test_a_truncated_checkpoint_is_skipped_and_reported(undisturbed, tmp_path: Path) -> None:
    variables = {"WEIGHTS": tmp_path / "weights"}
    train("by_steps.py", tmp_path, 1, KILL_AT=48, **variables)
    complete = sorted(tmp_path.glob("runs/by_steps/1/checkpoints/*/manifest.json"))
    newest = complete[-1].parent
    shard = newest / "rank-0.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])

    resumed = train("by_steps.py", tmp_path, 1, **variables)

    assert (
        f"checkpoint {newest.name} is not used: size_differs rank-0.safetensors" in resumed.output
    )
    previous = int(complete[-2].parent.name[15:27])
    assert f"begins after step {previous} (True)" in resumed.output
    assert_equal(torch.load(tmp_path / "weights"), undisturbed("by_steps.py", 1))


def test_a_store_that_temporarily_refuses_writes_does_not_stop_training(
    undisturbed, tmp_path: Path
) -> None:
    ended = train("failing_store.py", tmp_path, 1, WEIGHTS=tmp_path / "weights")
    assert ended.exit_codes == (0,), ended.output
    assert ended.output.count("failed: ") == 2
    assert_equal(torch.load(tmp_path / "weights"), undisturbed("by_steps.py", 1))


def test_a_checkpoint_of_an_older_version_is_restored(tmp_path: Path) -> None:
    """Written by the version before checkpoints were written in pieces."""
    shutil.copytree(OLD_RUN, tmp_path / "runs" / "every_kind" / "1")
    assert "everything is restored" in train("every_kind.py", tmp_path).output


def test_every_kind_of_value_is_restored(tmp_path: Path) -> None:
    assert train("every_kind.py", tmp_path).exit_codes == (1,)
    assert "everything is restored" in train("every_kind.py", tmp_path).output


@pytest.mark.heavy
def test_a_complete_local_run_is_followed_by_a_new_one(tmp_path: Path) -> None:
    for number in (1, 2):
        ended = train("by_steps.py", tmp_path, 1, WEIGHTS=tmp_path / "weights")
        assert "begins after step 0 (False)" in ended.output
        directory = tmp_path / "runs" / "by_steps" / str(number)
        result = json.loads((directory / "result.json").read_text())
        assert result["step"] == 60
        assert result["metrics"].keys() == {"loss"}
        lines = (directory / "samples.jsonl").read_text().splitlines()
        steps = [s for line in lines for s in json.loads(line)["columns"]["loss"]["steps"]]
        assert steps == list(range(1, 61))
