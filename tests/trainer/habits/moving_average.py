"""The exponential moving average of the weights is what is evaluated and kept."""

import torch
from data import points
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

import drivetrain

with drivetrain.run(max_steps=30, checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    run.resume(model=model, average=average, optimizer=optimizer)
    for x, y in run.steps(DataLoader(points(), 10, shuffle=True)):
        loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        run.log(loss=loss)
        if run.step % 10 == 0:
            average.eval()
            run.log(average_loss=nn.functional.cross_entropy(average(x), y))
    torch.save(average.module.state_dict(), "average.pt")
