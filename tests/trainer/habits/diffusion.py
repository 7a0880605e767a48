"""Diffusion: random times and noise, an average of the weights by hand, samples on the way."""

import copy

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

STAYS = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 10), 0)


def sample(net):
    x = torch.randn(4, 6)
    for time in reversed(range(10)):
        noise = net(torch.cat([x, torch.full((4, 1), time / 10)], 1))
        x = (x - (1 - STAYS[time]).sqrt() * noise) / STAYS[time].sqrt() + 0.1 * torch.randn_like(x)
    return x.clamp(-3, 3)


with drivetrain.run(max_steps=24, checkpoint_every_steps=5) as run:
    net = nn.Sequential(nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 6))
    average = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    run.resume(net=net, average=average, optimizer=optimizer)
    for x, _ in run.steps(DataLoader(points(), 12, shuffle=True, drop_last=True)):
        time = torch.randint(0, 10, (len(x),))
        stays, noise = STAYS[time][:, None], torch.randn_like(x)
        noisy = stays.sqrt() * x + (1 - stays).sqrt() * noise
        loss = nn.functional.mse_loss(net(torch.cat([noisy, time[:, None] / 10], 1)), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        for slow, fast in zip(average.parameters(), net.parameters(), strict=True):
            slow.lerp_(fast.detach(), 0.1)
        run.log(loss=loss)
        if run.step % 6 == 0:
            with torch.no_grad():
                run.log(spread=sample(average).std())
    torch.save(average.state_dict(), "ddpm.pt")
