"""Trains by epochs with gradient accumulation; variables as in by_steps.py."""

import os
from pathlib import Path

import torch
from by_steps import TRAIN, build_net, strike
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import drivetrain


def main() -> None:
    with drivetrain.run(checkpoint_every_steps=3) as run:
        model = run.parallel(build_net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        sampler = None
        if run.world_size > 1:
            sampler = DistributedSampler(TRAIN, run.world_size, run.rank)
        loader = DataLoader(TRAIN, 16, sampler=sampler, shuffle=not sampler)
        run.resume(model=model, optimizer=optimizer, schedule=schedule)
        print(f"rank {run.rank} begins after step {run.step}", flush=True)
        for epoch in run.epochs(6):
            for batches in epoch.steps(loader, accumulate=4):
                for x, y in batches:
                    x = x + 0.1 * torch.randn_like(x)
                    (nn.functional.cross_entropy(model(x), y) / len(batches)).backward()
                optimizer.step()
                optimizer.zero_grad()
                run.log(epoch=epoch.index)
                strike(run, every=3)
            schedule.step()
            run.log(learning_rate=schedule.get_last_lr()[0], noise=torch.rand(1))
        if run.rank == 0:
            torch.save(model.state_dict(), Path(os.environ["WEIGHTS"]))


if __name__ == "__main__":
    main()
