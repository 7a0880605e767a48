"""A compiled model (without a code generator, so that it compiles anywhere), saved unwrapped."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

torch.manual_seed(1337)

with drivetrain.run(max_steps=16, checkpoint_every_steps=3) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.SiLU(), nn.Linear(8, 2))
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.02)
    compiled = torch.compile(model, backend="eager")
    run.resume(model=compiled, optimizer=optimizer)
    for x, y in run.steps(DataLoader(points(), 8, shuffle=True)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(compiled(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
    torch.save(model.state_dict(), "compiled.pt")
