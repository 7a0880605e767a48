"""Implicit feedback: negatives are drawn in the collation, embeddings have an own optimizer."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

np.random.seed(90)
SEEN = [(user, int(item)) for user in range(12) for item in np.random.choice(15, 4, replace=False)]


def collate(pairs):
    users, items = torch.tensor(pairs).t()
    return users, items, torch.from_numpy(np.random.randint(15, size=len(pairs)))


with drivetrain.run(checkpoint_every_steps=4) as run:
    users, items = nn.Embedding(12, 4, sparse=True), nn.Embedding(15, 4, sparse=True)
    mix = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    sparse = torch.optim.SparseAdam([*users.parameters(), *items.parameters()], lr=0.02)
    dense = torch.optim.Adam(mix.parameters(), lr=0.01)
    run.resume(users=users, items=items, mix=mix, sparse=sparse, dense=dense)
    loader = DataLoader(SEEN, 8, shuffle=True, collate_fn=collate, num_workers=1)
    for epoch in run.epochs(4):
        for user, liked, other in epoch.steps(loader):
            better, worse = (mix(users(user) * items(item)) for item in (liked, other))
            loss = -nn.functional.logsigmoid(better - worse).mean()
            for optimizer in (sparse, dense):
                optimizer.zero_grad()
            loss.backward()
            for optimizer in (sparse, dense):
                optimizer.step()
            run.log(loss=loss)
    torch.save([users.weight, items.weight, mix.state_dict()], "bpr.pt")
