"""L-BFGS with a closure, full batches, predictions logged on the way."""

import torch
from data import points
from torch import nn

import drivetrain

with drivetrain.run(max_steps=14, checkpoint_every_steps=2) as run:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=3)
    x, y = points().tensors
    run.resume(model=model, optimizer=optimizer)
    for _ in run.steps():

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.double()), y)
            loss.backward()
            return loss

        run.log({"closure loss": optimizer.step(closure)})
    torch.save(model.state_dict(), "lbfgs.pt")
