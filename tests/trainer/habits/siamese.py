"""A siamese net: the data set draws a positive and a negative for each anchor."""

import random

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, Dataset

import drivetrain


class Triplets(Dataset):
    def __init__(self) -> None:
        self.x, y = points().tensors
        self.labels = y.tolist()
        self.of_label = {k: [i for i, j in enumerate(self.labels) if j == k] for k in (0, 1)}

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        label = self.labels[index]
        near, far = random.choice(self.of_label[label]), random.choice(self.of_label[1 - label])
        return self.x[index], self.x[near], self.x[far]


with drivetrain.run(checkpoint_every_steps=4) as run:
    net = nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 3))
    criterion = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.ASGD(net.parameters(), lr=0.05)
    run.resume(net=net, optimizer=optimizer)
    for epoch in run.epochs(4):
        total = epoch.state(loss=torch.zeros(()))
        for anchor, near, far in epoch.steps(DataLoader(Triplets(), 8, shuffle=True)):
            loss = criterion(net(anchor), net(near), net(far))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total.loss += loss.detach()
        run.log(epoch_loss=total.loss)
    torch.save(net.state_dict(), "siamese.pt")
