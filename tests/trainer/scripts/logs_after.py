"""Logs on rank 0 after `advance()`. Rank 1 gets SIGTERM within step STOP_AT."""

import os
import signal

import torch
from torch import nn

import drivetrain

with drivetrain.run(max_steps=6) as run:
    torch.manual_seed(1)
    model = run.parallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.resume(model=model, optimizer=optimizer)
    while run.step < 6:
        loss = model(torch.ones(4, 2)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run.rank == 1 and run.step + 1 == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), signal.SIGTERM)
        run.advance()
        if run.rank == 0:
            run.log(loss=loss)
