"""Stochastic weight averaging: from the third epoch on, with statistics made again at the end."""

import torch
from data import points
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader

import drivetrain

with drivetrain.run(seed=5, checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    averaged = AveragedModel(model)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    constant = SWALR(optimizer, swa_lr=0.03, anneal_epochs=2)
    loader = DataLoader(points(), 8, shuffle=True)
    run.resume(model=model, optimizer=optimizer, avg=averaged, cosine=cosine, constant=constant)
    for epoch in run.epochs(5):
        for x, y in epoch.steps(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
        if epoch.index >= 2:
            averaged.update_parameters(model)
            constant.step()
        else:
            cosine.step()
    update_bn(loader, averaged)
    torch.save(averaged.state_dict(), "swa.pt")
