"""Two ranks, each with its part of a list of batches, gradients accumulated over two of them."""

import torch
from data import points
from torch import nn

import drivetrain

with drivetrain.run(checkpoint_every_steps=2) as run:
    model = run.parallel(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.3), nn.Linear(4, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = points().tensors
    batches = list(zip(x.split(4), y.split(4), strict=True))[run.rank :: run.world_size]
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.epochs(5):
        for chunk in epoch.steps(batches, accumulate=2):
            for part, label in chunk:
                loss = nn.functional.cross_entropy(model(part), label) / len(chunk)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.log(loss=loss)
    if run.rank == 0:
        torch.save(model.state_dict(), "ddp.pt")
