"""Two tasks with a loader each: the smaller one is repeated, and a third makes unlabelled noise."""

from itertools import cycle

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

torch.manual_seed(15)

with drivetrain.run(checkpoint_every_steps=4) as run:
    trunk, first, second = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 1)
    parameters = [p for part in (trunk, first, second) for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)
    run.resume(trunk=trunk, first=first, second=second, optimizer=optimizer)
    large, small = DataLoader(points(), 6, shuffle=True), DataLoader(points(12), 4, shuffle=True)
    for epoch in run.epochs(4):
        for (x, y), (z, _) in epoch.steps(zip(large, cycle(small), strict=False)):
            hidden = nn.functional.dropout(trunk(x), 0.2)
            loss = nn.functional.cross_entropy(first(hidden.relu()), y)
            sums = second(trunk(z).relu())[:, 0]
            both = loss + nn.functional.smooth_l1_loss(sums, z.sum(1))
            optimizer.zero_grad()
            both.backward()
            optimizer.step()
            run.log(loss=loss, both=both)
    torch.save([trunk.state_dict(), first.state_dict(), second.state_dict()], "tasks.pt")
