"""Worker processes that are spawned, as on other systems."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import drivetrain


class Images(Dataset):
    def __init__(self) -> None:
        self.images = np.linspace(0, 1, 20 * 36, dtype=np.float32).reshape(20, 6, 6)
        self.jitter = np.random.default_rng(3)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = np.roll(self.images[index], np.random.randint(6), axis=random.randrange(2))
        image = image + self.jitter.normal(scale=0.1, size=image.shape).astype(np.float32)
        return torch.from_numpy(image).flatten(), index % 2


if __name__ == "__main__":
    with drivetrain.run(max_steps=9, checkpoint_every_steps=2) as run:
        model = nn.Sequential(nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loader = DataLoader(
            Images(), 2, shuffle=True, num_workers=1, multiprocessing_context="spawn"
        )
        run.resume(model=model, optimizer=optimizer)
        for x, y in run.steps(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
        torch.save(model.state_dict(), "model.pt")
