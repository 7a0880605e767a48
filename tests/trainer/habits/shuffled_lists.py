"""Batches are lists of indices, shuffled by hand at the top of each epoch."""

import random

import numpy as np
import torch
from data import points
from torch import nn

import drivetrain

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
X, Y = points().tensors

with drivetrain.run(checkpoint_every_steps=5) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.epochs(4):
        order = np.random.permutation(len(X))
        scale = 1 + 0.1 * random.random()
        for begin in epoch.steps(range(0, len(X), 6)):
            rows = order[begin : begin + 6]
            loss = nn.functional.cross_entropy(model(scale * X[rows]), Y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
    torch.save(model.state_dict(), "model.pt")
