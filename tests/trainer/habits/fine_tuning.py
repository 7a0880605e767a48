"""A frozen backbone that thaws after two epochs, two parameter groups, a distilled target."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

torch.manual_seed(6)
TEACHER = nn.Linear(6, 2).eval()

with drivetrain.run(checkpoint_every_steps=3) as run:
    backbone = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
    head = nn.Linear(8, 2)
    optimizer = torch.optim.Adam(
        [{"params": backbone.parameters(), "lr": 1e-3}, {"params": head.parameters(), "lr": 1e-2}]
    )
    steps = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], gamma=0.3)
    run.resume(backbone=backbone, head=head, optimizer=optimizer, steps=steps)
    for epoch in run.epochs(4):
        for parameter in backbone.parameters():
            parameter.requires_grad = epoch.index >= 2
        for x, y in epoch.steps(DataLoader(points(), 8, shuffle=True)):
            out = head(backbone(x))
            with torch.no_grad():
                soft = nn.functional.softmax(TEACHER(x) / 2, -1)
            loss = nn.functional.cross_entropy(out, y) + nn.functional.cross_entropy(out / 2, soft)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
        steps.step()
    torch.save((backbone.state_dict(), head.state_dict()), "tuned.pt")
