"""Data-parallel training on two ranks, as started by torchrun."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import drivetrain


def main() -> None:
    with drivetrain.run(checkpoint_every_steps=3) as run:
        torch.manual_seed(7 + run.rank)
        model = run.parallel(
            nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2)),
            find_unused_parameters=True,
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        sampler = DistributedSampler(points(), run.world_size, run.rank)
        loader = DataLoader(points(), 6, sampler=sampler, num_workers=1)
        run.resume(model=model, optimizer=optimizer)
        for epoch in run.epochs(5):
            for x, y in epoch.steps(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log(loss=loss)
        if run.rank == 0:
            torch.save(model.module.state_dict(), "snapshot.pt")


if __name__ == "__main__":
    main()
