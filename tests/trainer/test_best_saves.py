"""What the pods call best exists (docs/architecture.md, rule 9)."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from drivetrain.storage import create_storage
from drivetrain_schemas.ids import job_id_for, run_id_for
from tests.trainer.ranks import Ended, train

JOB = job_id_for("default", "judged")
SPEC = {
    "name": "judged",
    "command": ["true"],
    "metric": {"name": "score", "goal": "maximize"},
    "checkpoint": {"every_steps": 10},
}


def train_as_in_a_pod(directory: Path, ranks: int, mode: str, share: float) -> Ended:
    create_storage(directory)
    variables = {
        "TENANT_ID": "default",
        "JOB_ID": JOB,
        "RUN_ID": run_id_for(JOB, 1),
        "ATTEMPT": 1,
        "FENCE": 1,
        "POD_DIRECTORY": directory,
        "OBJECT_STORE_URL": directory.as_uri(),
        "CHECKPOINT_URL": f"{directory.as_uri()}/checkpoints",
        "JOB_SPEC": json.dumps(SPEC),
    }
    pod = {f"DRIVETRAIN_{name}": value for name, value in variables.items()}
    ended = train("judged.py", directory, ranks, MODE=mode, SHARE=share, **pod)
    assert ended.exit_codes == (0,) * ranks, ended.output
    return ended


def read_checkpoints(directory: Path) -> dict[int, tuple[float, dict[str, float]]]:
    """The weight and the metrics of each, by step."""
    found = {}
    for path in directory.glob("checkpoints/*/manifest.json"):
        manifest = json.loads(path.read_text())
        weight = load_file(path.with_name("rank-0.safetensors"))["model.weight"].item()
        found[manifest["step"]] = weight, manifest["metrics"]
    return found


@pytest.mark.parametrize(
    ("ranks", "mode", "at_least"),
    [
        pytest.param(1, "steps", {7, 14, 21, 28}, id="one rank"),
        # The first evaluations show where the next one will be.
        pytest.param(
            2,
            "steps",
            {28},
            id="two ranks, of which one logs",
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            2, "epochs", {7, 14, 21, 28}, id="two ranks, after each epoch", marks=pytest.mark.heavy
        ),
    ],
)
def test_the_step_of_the_best_value_is_saved(tmp_path: Path, ranks, mode, at_least) -> None:
    ended = train_as_in_a_pod(tmp_path, ranks, mode, share=1e9)

    checkpoints = read_checkpoints(tmp_path)
    evaluated = {step for step, (_, metrics) in checkpoints.items() if metrics}
    assert at_least | {56} <= evaluated <= {7, 14, 21, 28, 56}  # 56 is the end
    assert checkpoints[28] == (28.0, {"score": 0.0})
    assert {10, 20, 30, 40, 50} <= checkpoints.keys()
    assert "was not saved" not in ended.output


@pytest.mark.heavy
def test_a_best_value_without_a_checkpoint_is_reported(tmp_path: Path) -> None:
    ended = train_as_in_a_pod(tmp_path, 1, "steps", share=-1.0)
    assert "best score 0 at step 28 was not saved; best saved: -28 at step 56" in ended.output
    assert read_checkpoints(tmp_path).keys() == {10, 20, 30, 40, 50, 56}
