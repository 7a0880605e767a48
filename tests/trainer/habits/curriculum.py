"""A curriculum: easy samples first, more of them and larger batches from epoch to epoch."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, Subset

import drivetrain

torch.manual_seed(12)
data = points()
difficulty = data.tensors[0].sum(1).abs().neg().argsort().tolist()

with drivetrain.run(checkpoint_every_steps=3) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.RReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.3, total_iters=6)
    slow = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=20, power=2)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, slow], [6])
    run.resume(model=model, optimizer=optimizer, schedule=schedule)
    for epoch in run.epochs(4):
        known = Subset(data, difficulty[: 12 * (epoch.index + 1)])
        for x, y in epoch.steps(DataLoader(known, 3 + epoch.index, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            run.log(loss=loss, rate=schedule.get_last_lr()[0], size=len(x))
    torch.save(model.state_dict(), "model.pt")
