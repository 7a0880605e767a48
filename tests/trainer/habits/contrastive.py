"""Two random views of each sample, a projection head, a temperature, warm restarts of the rate."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain


def view(x):
    return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)


def collate(samples):
    x = torch.stack([x for x, _ in samples])
    return view(x), view(x)


with drivetrain.run(checkpoint_every_steps=4) as run:
    encoder, head = nn.Linear(6, 8), nn.Linear(8, 4)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    restarts = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    loader = DataLoader(points(), 8, shuffle=True, drop_last=True, collate_fn=collate)
    run.resume(encoder=encoder, head=head, optimizer=optimizer, restarts=restarts)
    for epoch in run.epochs(4):
        for first, second in epoch.steps(loader):
            both = head(torch.relu(encoder(torch.cat([first, second]))))
            alike = nn.functional.normalize(both) @ nn.functional.normalize(both).t() / 0.5
            alike = alike.masked_fill(torch.eye(len(alike), dtype=torch.bool), float("-inf"))
            loss = nn.functional.cross_entropy(alike, torch.arange(len(alike)).roll(len(first)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            restarts.step(epoch.index + epoch.position / len(loader))
            run.log(loss=loss)
    torch.save(encoder.state_dict(), "simclr.pt")
