"""As torch's notes on reproducibility say: a generator for the loader, seeds for its workers."""

import random

import numpy as np
import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, Dataset

import drivetrain

torch.use_deterministic_algorithms(True)


class Jittered(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        x, y = points(24)[index]
        return x * random.uniform(0.9, 1.1) + float(np.random.normal(0, 0.05)), y


def seed_worker(number):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


g = torch.Generator()
g.manual_seed(0)

with drivetrain.run(checkpoint_every_steps=2) as run:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        Jittered(), 4, shuffle=True, num_workers=1, worker_init_fn=seed_worker, generator=g
    )
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.epochs(3):
        for x, y in epoch.steps(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
    torch.save(model.state_dict(), "model.pt")
