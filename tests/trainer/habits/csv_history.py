"""Means of each epoch and every loss of the run, written as CSV at the end."""

import csv

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

with drivetrain.run(checkpoint_every_steps=3) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.resume(model=model, optimizer=optimizer)
    kept = run.state(losses=[], rows=[])
    for epoch in run.epochs(4):
        sums = epoch.state(loss=0.0, correct=0, total=0)
        for x, y in epoch.steps(DataLoader(points(), 6, shuffle=True)):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums.loss += loss.item() * len(x)
            sums.correct += (out.argmax(1) == y).sum().item()
            sums.total += len(x)
            kept.losses.append(loss.item())
        row = [epoch.index, sums.loss / sums.total, sums.correct / sums.total]
        kept.rows.append(row)
        run.log(loss=row[1], accuracy=row[2])
    torch.save([model.state_dict(), kept.losses], "model.pt")
with open("history.csv", "w", newline="") as file:
    csv.writer(file).writerows([["epoch", "loss", "accuracy"], *kept.rows])
