"""A script that is stopped within an accumulation of gradients ends as one that was not."""

import json
import signal
from pathlib import Path

import pytest
import torch

import drivetrain
from tests.trainer.test_run import in_a_directory

__all__ = ["in_a_directory"]


def train(stop_at: int = 0, *, accumulate: int = 4, removes: bool = True) -> list[float]:
    """The weights after two passes over 16 batches."""
    torch.manual_seed(0)
    inputs = torch.randn(16, 8, 3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with drivetrain.run(checkpoint_every_steps=100) as run:
        run.resume(model=model, optimizer=optimizer)
        for epoch in run.epochs(2):
            for batch in epoch.steps(list(inputs)):
                (model(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
                if (epoch.position + 1) % accumulate == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=removes)
                if run.step == stop_at:
                    signal.raise_signal(signal.SIGTERM)
    return [number for one in model.parameters() for number in one.flatten().tolist()]


def held(directory: Path) -> list[str]:
    """The optimizers of whose parameters the newest checkpoint holds gradients."""
    newest = max(directory.rglob("rank-0.json"), key=lambda path: path.stat().st_mtime_ns)
    return list(json.loads(newest.read_text()).get("gradients", {}))


@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize("stops", [(1,), (6,), (7, 21), (16,), (3, 8, 31)])
def test_what_was_summed_up_is_kept(stops: tuple[int, ...], removes: bool) -> None:
    whole = train(removes=removes)
    for stop in stops:
        with pytest.raises(SystemExit):
            train(stop, removes=removes)
    assert train(removes=removes) == whole


@pytest.mark.parametrize("removes", [True, False])
def test_a_checkpoint_between_optimizer_steps_holds_no_gradients(
    tmp_path: Path, removes: bool
) -> None:
    with pytest.raises(SystemExit):
        train(8, removes=removes)
    assert held(tmp_path) == []
    with pytest.raises(SystemExit):
        train(10, removes=removes)
    assert held(tmp_path) == ["optimizer"]


def test_gradients_that_a_step_has_used_are_not_held(tmp_path: Path) -> None:
    """Of a script that removes them before it calls `backward`, not after the step."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with drivetrain.run(max_steps=3) as run:
        run.resume(model=model, optimizer=optimizer)
        for _ in run.steps():
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert held(tmp_path) == []
