"""Samples with a high loss are drawn more often; their losses are an array."""

import numpy as np
import torch
from data import points
from torch import nn

import drivetrain

np.random.seed(44)
X, Y = points().tensors

with drivetrain.run(max_steps=26, checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.Mish(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, amsgrad=True)
    run.resume(model=model, optimizer=optimizer)
    kept = run.state(losses=np.ones(len(X)), counts=np.zeros(len(X), dtype=np.int64))
    for _ in run.steps():
        chances = kept.losses / kept.losses.sum()
        rows = np.random.choice(len(X), 8, replace=False, p=chances)
        losses = nn.functional.cross_entropy(model(X[rows]), Y[rows], reduction="none")
        weights = torch.from_numpy(1 / (len(X) * chances[rows])).float()
        loss = (weights / weights.max() * losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.losses[rows] = losses.detach().numpy() + 1e-3
        kept.counts[rows] += 1
        run.log(loss=loss, most=kept.counts.max())
    torch.save([model.state_dict(), torch.from_numpy(kept.counts)], "model.pt")
