"""The range test of learning rates: the rate grows with each step until the loss explodes."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

with drivetrain.run(max_steps=60, seed=2, checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    growth = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=1.3)
    run.resume(model=model, optimizer=optimizer, growth=growth)
    found = run.state(rates=[], losses=[], average=0.0, best=float("inf"))
    for x, y in run.steps(DataLoader(points(), 8, shuffle=True)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.average = 0.8 * found.average + 0.2 * loss.item()
        smooth = found.average / (1 - 0.8**run.step)
        found.rates.append(growth.get_last_lr()[0])
        found.losses.append(smooth)
        growth.step()
        run.log(smooth=smooth, rate=found.rates[-1])
        found.best = min(found.best, smooth)
        if run.step > 10 and smooth > 4 * found.best:
            break
    falls = [after - before for before, after in zip(found.losses, found.losses[1:], strict=False)]
    rate = found.rates[falls.index(min(falls))]
    torch.save({"rate": rate, **vars(found)}, "rates.pt")
