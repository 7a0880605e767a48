"""Two ranks train like one process of plain PyTorch on their combined batches."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.trainer.ranks import train
from tests.trainer.scripts.averaging import (
    BATCH,
    NUM_EPOCHS,
    NUM_RANKS,
    TRAIN,
    build_net,
    build_optimizer,
)


def train_plainly(accumulate: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """A step takes the batches of all ranks at once, and of all that are accumulated."""
    torch.manual_seed(7)
    model = build_net()
    optimizer = build_optimizer(model)
    losses = []
    for _ in range(NUM_EPOCHS):
        for x, y in DataLoader(TRAIN, BATCH * NUM_RANKS * accumulate):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return model.state_dict(), losses


@pytest.mark.parametrize("accumulate", [4, 0])
@pytest.mark.heavy
def test_loss_and_weights_equal_those_of_plain_pytorch(tmp_path: Path, accumulate: int) -> None:
    ended = train("averaging.py", tmp_path, NUM_RANKS, ACCUMULATE=accumulate, LEFT=tmp_path)
    assert ended.exit_codes == (0,) * NUM_RANKS, ended.output
    first, second = (torch.load(tmp_path / f"rank-{rank}") for rank in range(NUM_RANKS))

    weights, losses = train_plainly(accumulate or 1)

    for name, tensor in weights.items():
        assert torch.equal(first["weights"][name], second["weights"][name]), name
        torch.testing.assert_close(first["weights"][name], tensor, rtol=1e-9, atol=1e-12)
    of_batches = torch.tensor([first["losses"], second["losses"]]).mean(0)
    of_steps = of_batches.reshape(-1, accumulate or 1).mean(1)
    torch.testing.assert_close(of_steps, torch.tensor(losses), rtol=1e-6, atol=1e-6)
    assert first["drawn"] != second["drawn"]
