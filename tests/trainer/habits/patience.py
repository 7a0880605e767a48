"""The best weights are kept in memory; the script leaves by sys.exit when patience is over."""

import copy
import sys

import torch
from data import Kept, points
from torch import nn
from torch.utils.data import DataLoader, random_split

import drivetrain

torch.manual_seed(2)
TRAIN, VALIDATION = random_split(points(), [36, 12])

with drivetrain.run(checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.05)
    kept = Kept(best=float("inf"), waited=0, weights=copy.deepcopy(model.state_dict()))
    run.resume(model=model, optimizer=optimizer, kept=kept)
    for epoch in run.epochs(6):
        model.train()
        for x, y in epoch.steps(DataLoader(TRAIN, 6, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            x, y = VALIDATION[:]
            loss = nn.functional.cross_entropy(model(x), y).item()
        run.log(validation_loss=loss)
        kept.values["waited"] += 1
        if loss < kept.values["best"]:
            weights = copy.deepcopy(model.state_dict())
            kept.values.update(best=loss, waited=0, weights=weights)
            torch.save(weights, "best_model.pt")
        if kept.values["waited"] == 2:
            sys.exit(0)
