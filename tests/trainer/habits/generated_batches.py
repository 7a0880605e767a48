"""A generator function makes the batches of an epoch; progress is printed with a position."""

import random

import torch
from data import points
from torch import nn

import drivetrain

X, Y = points().tensors


def batches(size: int):
    order = list(range(len(X)))
    random.shuffle(order)
    for begin in range(0, len(order), size):
        yield X[order[begin : begin + size]], Y[order[begin : begin + size]]


with drivetrain.run(checkpoint_every_steps=4) as run:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.epochs(4):
        for x, y in epoch.steps(batches(7)):
            loss = nn.functional.cross_entropy(model(x + torch.randn_like(x) / 10), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss, position=epoch.position)
            if epoch.position % 3 == 0:
                print(f"epoch {epoch.index} [{epoch.position}] loss {loss.item():.4f}")
    torch.save(model.state_dict(), "model.pt")
