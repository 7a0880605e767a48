"""Half precision: a scaler of the loss, gradients accumulated over batches and clipped."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

torch.manual_seed(31)

with drivetrain.run(checkpoint_every_steps=2) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    run.resume(model=model, optimizer=optimizer, scaler=scaler)
    for epoch in run.epochs(5):
        for batches in epoch.steps(DataLoader(points(), 4, shuffle=True), accumulate=3):
            for x, y in batches:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(x), y) / len(batches)
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            run.log(loss=loss, scale=scaler.get_scale())
    torch.save(model.state_dict(), "amp.pt")
