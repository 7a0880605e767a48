"""A pool of processes prepares the features of each epoch."""

import multiprocessing

import torch
from data import points
from torch import nn

import drivetrain

torch.manual_seed(4)


def prepare(row: list[float]) -> list[float]:
    return [value * abs(value) for value in row]


with drivetrain.run(checkpoint_every_steps=4) as run:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.resume(model=model, optimizer=optimizer)
    x, y = points(24).tensors
    for epoch in run.epochs(4):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            features = torch.tensor(pool.map(prepare, x.tolist()))
        order = torch.randperm(len(x)).split(4)
        for rows in epoch.steps(order):
            loss = nn.functional.cross_entropy(model(features[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
    torch.save(model.state_dict(), "model.pt")
