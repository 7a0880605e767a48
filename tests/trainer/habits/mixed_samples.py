"""Mixup with numpy's beta distribution, label smoothing, one cycle of the learning rate."""

import numpy as np
import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

np.random.seed(123)

with drivetrain.run(max_steps=28, seed=9, checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=28)
    run.resume(model=model, optimizer=optimizer, cycle=cycle)
    for x, y in run.steps(DataLoader(points(), 8, shuffle=True)):
        share = np.random.beta(0.4, 0.4)
        other = torch.from_numpy(np.random.permutation(len(x)))
        out = model(share * x + (1 - share) * x[other])
        loss = share * nn.functional.cross_entropy(out, y)
        loss = loss + (1 - share) * nn.functional.cross_entropy(out, y[other])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cycle.step()
        run.log(loss=loss, rate=cycle.get_last_lr()[0], share=share)
    torch.save(model.state_dict(), "mixup.pt")
