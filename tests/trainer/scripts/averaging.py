"""Trains in double precision and in order, so that it can be compared with plain PyTorch.

Variables: ACCUMULATE batches make a step (0: one, without lists); LEFT is the directory in which
each rank leaves its weights, the loss of each of its batches, and a number it drew.
"""

import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import drivetrain

torch.set_num_threads(1)
BATCH = 4
NUM_RANKS = 2
NUM_EPOCHS = 3
GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(96, 8, generator=GENERATOR, dtype=torch.float64)
TRAIN = TensorDataset(X, (X.sum(1) > 0).long())


def build_net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).double()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def main() -> None:
    accumulate = int(os.environ["ACCUMULATE"])
    losses = []
    with drivetrain.run(seed=7) as run:
        model = run.parallel(build_net())
        optimizer = build_optimizer(model)
        sampler = DistributedSampler(TRAIN, run.world_size, run.rank, shuffle=False)
        loader = DataLoader(TRAIN, BATCH, sampler=sampler)
        run.resume(model=model, optimizer=optimizer)
        drawn = torch.rand(1)
        for epoch in run.epochs(NUM_EPOCHS):
            for item in epoch.steps(loader, accumulate or None):
                batches = item if accumulate else [item]
                for x, y in batches:
                    loss = nn.functional.cross_entropy(model(x), y)
                    (loss / len(batches)).backward()
                    losses.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
        left = {"weights": model.module.state_dict(), "losses": losses, "drawn": drawn}
        torch.save(left, Path(os.environ["LEFT"], f"rank-{run.rank}"))


if __name__ == "__main__":
    main()
