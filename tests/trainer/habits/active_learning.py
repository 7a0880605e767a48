"""Labels are asked for where the model is least sure: the training set grows after each epoch."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, Subset

import drivetrain

torch.manual_seed(10)
data = points()

with drivetrain.run(checkpoint_every_steps=2) as run:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.02)
    run.resume(model=model, optimizer=optimizer)
    kept = run.state(labelled=torch.randperm(len(data))[:10].tolist())
    for epoch in run.epochs(6):
        for x, y in epoch.steps(DataLoader(Subset(data, kept.labelled), 5, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
        with torch.no_grad():  # with dropout: the mean of several
            chances = torch.stack([model(data.tensors[0]).softmax(1) for _ in range(4)]).mean(0)
        unsure = -(chances * chances.log()).sum(1)
        unsure[kept.labelled] = -1
        kept.labelled += unsure.topk(5).indices.tolist()
    torch.save([model.state_dict(), kept.labelled], "active.pt")
