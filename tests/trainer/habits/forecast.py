"""Forecasts of a series: sliding windows, a rate of teacher forcing that falls with the epochs."""

import math
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import drivetrain

SERIES = torch.tensor([math.sin(i / 3) + 0.1 * math.cos(i) for i in range(60)])


class Windows(Dataset):
    def __init__(self, begin, end) -> None:
        self.mean, self.std = SERIES[:40].mean(), SERIES[:40].std()
        self.series = (SERIES[begin:end] - self.mean) / self.std

    def __len__(self):
        return len(self.series) - 7

    def __getitem__(self, i):
        return self.series[i : i + 5], self.series[i + 5 : i + 8]


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(1, 6), nn.Linear(6, 1)

    def forward(self, past, future=None, forcing=0.0):
        state, found = None, []
        for value in past.t():
            state = self.cell(value[:, None], state)
        for i in range(3):
            found.append(self.out(state[0])[:, 0])
            given = future is not None and random.random() < forcing
            state = self.cell((future[:, i] if given else found[-1])[:, None], state)
        return torch.stack(found, 1)


with drivetrain.run(checkpoint_every_steps=3) as run:
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    run.resume(model=model, optimizer=optimizer)
    kept = run.state(errors=[])
    for epoch in run.epochs(4):
        forcing = max(0.0, 0.8 - 0.2 * epoch.index)
        for past, future in epoch.steps(DataLoader(Windows(0, 40), 6, shuffle=True)):
            loss = nn.functional.huber_loss(model(past, future, forcing), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
        with torch.no_grad():
            pairs = DataLoader(Windows(40, 60), 6)
            errors = [(model(past) - future).abs().mean().item() for past, future in pairs]
        kept.errors.append(sum(errors) / len(errors))
        run.log(error=kept.errors[-1])
    torch.save([model.state_dict(), kept.errors], "forecast.pt")
