"""Word vectors with negative samples and sparse gradients."""

import numpy as np
import torch
from data import text
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import drivetrain

WORDS = text(120)

with drivetrain.run(checkpoint_every_steps=5) as run:
    vectors, context = nn.Embedding(11, 4, sparse=True), nn.Embedding(11, 4, sparse=True)
    optimizer = torch.optim.SparseAdam([*vectors.parameters(), *context.parameters()], lr=0.05)
    run.resume(vectors=vectors, context=context, optimizer=optimizer)
    loader = DataLoader(TensorDataset(WORDS[:-1], WORDS[1:]), 16, shuffle=True)
    for epoch in run.epochs(3):
        for center, near in epoch.steps(loader):
            far = torch.from_numpy(np.random.choice(11, size=(len(center), 3)))
            v = vectors(center)
            good = nn.functional.logsigmoid((v * context(near)).sum(-1))
            bad = nn.functional.logsigmoid(-(v[:, None] * context(far)).sum(-1)).sum(-1)
            loss = -(good + bad).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss)
    torch.save(vectors.weight, "vectors.pt")
