"""A small, slow, exactly repeatable training job: what the failure scenarios strike.

Dropout and shuffling draw from the generators that a checkpoint must restore; a pause per
step makes room to strike in, until the file named `hurry` exists.
"""

import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import drivetrain

generator = torch.Generator().manual_seed(7)
INPUTS = torch.randn(600, 32, generator=generator)
LABELS = (INPUTS[:, :4].sum(dim=1) > 0).long()
DATA = TensorDataset(INPUTS, LABELS)

with drivetrain.run(max_steps=400, hyperparameters={"pause_seconds": 0.03, "hurry": ""}) as run:
    hurry = Path(run.hyperparameters["hurry"] or "/nonexistent")
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2))
    model = run.parallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = DistributedSampler(DATA, run.world_size, run.rank) if run.world_size > 1 else None
    loader = DataLoader(DATA, 16, sampler=sampler, shuffle=sampler is None)
    run.resume(model=model, optimizer=optimizer)
    for inputs, labels in run.steps(loader):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
        print(f"step {run.step}", flush=True)
        if not hurry.exists():
            time.sleep(run.hyperparameters["pause_seconds"])
