"""Scripts in the styles of well-known tutorials are killed at random steps and started again.

Each ends with the weights and the curves of an undisturbed run, bit for bit. The scripts are in
`habits/`; they are examples of what a training script may do.
"""

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.ranks import run_ranks

HABITS = Path(__file__).parent / "habits"
# Shared data, and a script without the package (test_plain_ddp.py).
NOT_ALONE = ("data", "plain_ddp")
# Each of them starts processes or compiles for many seconds.
SLOW = ("compiled", "hydra_style", "segmentation", "spawned_workers")
# Quick, but many: `make test` has enough without them.
FURTHER = (
    "active_learning",
    "actor_critic",
    "averaged_weights",
    "buckets",
    "curriculum",
    "diffusion",
    "endless_loop",
    "folds",
    "forecast",
    "gradient_penalty",
    "hard_samples",
    "mean_teacher",
    "meta_learning",
    "mutual_learning",
    "own_checkpoint",
    "own_generators",
    "pruned",
    "rate_finder",
    "recommender",
    "reproducible",
    "siamese",
    "tied_autoencoder",
    "two_loaders",
)
SCRIPTS = [
    pytest.param(stem, marks=[pytest.mark.heavy] if stem in SLOW + FURTHER else [])
    for stem in sorted(path.stem for path in HABITS.glob("*.py"))
    if stem not in NOT_ALONE
]
ARGUMENTS = {
    "configured": ["optimizer=Adam", "rate=0.02"],
    "hydra_style": ["optimizer=adam", "optimizer.lr=0.02", "+model.hidden=6"],
    "vae": ["--batch-size", "8"],
}


def run_script(
    script: str,
    directory: Path,
    stop: tuple[int, str] | None = None,
    size: int = 0,
    forgets: bool = False,
) -> list[int]:
    """The exit codes of its ranks. `stop`: after so many optimizer steps, by that signal.

    `forgets`: a resume continues at the right place, with nothing of what the script names.
    """
    variables: dict[str, object] = {}
    if stop is not None:
        variables |= {"STOP_AFTER": stop[0], "STOP_BY": stop[1]}
    if forgets:
        variables |= {"FORGET": 1}
    size = size or (2 if script.startswith("two_ranks") else 1)
    arguments = ARGUMENTS.get(script, [])
    return list(run_ranks(HABITS / f"{script}.py", directory, variables, size, arguments))


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """All tensors and numbers of what a script has saved, by their path."""
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    return {
        key: leaf
        for name, part in value.items()
        for key, leaf in flat(part, f"{path}/{name}").items()
    }


def weights(directory: Path) -> dict[str, Any]:
    files = sorted(directory.glob("*.pt"))
    assert files, (directory / "log").read_text()
    return {file.name: file.read_text() for file in directory.glob("*.csv")} | {
        key: leaf
        for file in files
        for key, leaf in flat(torch.load(file, weights_only=False), file.name).items()
    }


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Bit for bit."""
    return found.keys() == wanted.keys() and all(
        torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
        for name, value in wanted.items()
    )


def curves(directory: Path, script: str) -> dict[tuple[str, int], float]:
    """Every logged value; of those logged twice, the last."""
    (file,) = directory.glob(f"runs/{script}/*/samples.jsonl")
    out = {}
    for line in file.read_text().splitlines():
        for name, column in json.loads(line)["columns"].items():
            for step, value in zip(column["steps"], column["values"], strict=True):
                out[name, step] = value
    return out


def folders(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).mkdir()
    return [root / name for name in names]


def stops(script: str, num_steps: int) -> tuple[int, int]:
    """Two steps, as seeded, so that a failure can be repeated."""
    chance = random.Random(script)
    return chance.randrange(num_steps // 3, num_steps // 2), chance.randrange(1, num_steps // 3)


def undisturbed(script: str, directory: Path) -> tuple[int, int]:
    """How many ranks the script has, and how many optimizer steps each takes."""
    codes = run_script(script, directory)
    assert set(codes) == {0}, (directory / "log").read_text()
    return len(codes), int((directory / "num_steps").read_text())


def test_there_are_many_habits() -> None:
    assert len(SCRIPTS) >= 50


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_is_killed_twice_ends_as_if_it_had_not_been(
    tmp_path: Path, script: str
) -> None:
    whole, killed = folders(tmp_path, "whole", "killed")
    ranks, num_steps = undisturbed(script, whole)
    first, second = stops(script, num_steps)

    log = killed / "log"
    assert run_script(script, killed, (first, "SIGKILL")) == [-signal.SIGKILL] * ranks, (
        log.read_text()
    )
    assert run_script(script, killed, (second, "SIGTERM")) == [75] * ranks, log.read_text()
    assert run_script(script, killed) == [0] * ranks, log.read_text()

    said = [path.read_text() for path in (log, *killed.glob("outputs/**/*.log"))]
    assert "".join(said).count("resumed at step") == 2
    assert same(weights(killed), weights(whole))
    assert curves(killed, script) == curves(whole, script)


@pytest.mark.heavy
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_without_the_state_that_it_names_ends_otherwise(
    tmp_path: Path, script: str
) -> None:
    """So the test above can fail for each of them."""
    whole, forgetful = folders(tmp_path, "whole", "forgetful")
    ranks, num_steps = undisturbed(script, whole)
    first, _ = stops(script, num_steps)
    assert run_script(script, forgetful, (first, "SIGTERM")) == [75] * ranks
    assert run_script(script, forgetful, forgets=True) == [0] * ranks
    assert not same(weights(forgetful), weights(whole))


def test_a_run_that_gets_more_ranks_continues_at_the_same_sample(tmp_path: Path) -> None:
    script = "two_ranks_of_a_list"
    assert run_script(script, tmp_path, (4, "SIGTERM"), size=1) == [75]
    assert run_script(script, tmp_path, size=2) == [0, 0], (tmp_path / "log").read_text()
    said = "the pass continues at batch 4 of each rank instead of 8; 0 samples are repeated"
    assert said in (tmp_path / "log").read_text()
