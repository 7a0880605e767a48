"""Cross-validation: a model, an optimizer and a score for each fold, one after the other."""

import numpy as np
import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, Subset

import drivetrain

FOLDS, EPOCHS = 3, 2
np.random.seed(8)
torch.manual_seed(8)
data = points()
parts = np.array_split(np.random.permutation(len(data)), FOLDS)

with drivetrain.run(checkpoint_every_steps=3) as run:
    models = nn.ModuleList(
        nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.Linear(6, 2)) for _ in parts
    )
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.03) for model in models]
    run.resume(models=models, **{f"optimizer{i}": one for i, one in enumerate(optimizers)})
    kept = run.state(scores=[])
    for epoch in run.epochs(FOLDS * EPOCHS):
        fold = epoch.index // EPOCHS
        model, optimizer = models[fold].train(), optimizers[fold]
        rest = np.concatenate([part for i, part in enumerate(parts) if i != fold])
        for x, y in epoch.steps(DataLoader(Subset(data, rest), 8, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({f"fold{fold}/loss": loss})
        if epoch.index % EPOCHS == EPOCHS - 1:
            x, y = data[parts[fold]]
            kept.scores.append((model.eval()(x).argmax(1) == y).float().mean().item())
    run.log(score=np.mean(kept.scores))
    torch.save([models.state_dict(), kept.scores], "folds.pt")
