"""A trainer that had written its own checkpoints: what it gave to torch.save is given to resume."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Sequential(
            nn.Linear(6, 8), nn.AlphaDropout(0.2), nn.SELU(), nn.Linear(8, 2)
        )
        self.optimizer = torch.optim.Adadelta(self.model.parameters())
        self.losses, self.best = [], float("inf")

    def state_dict(self):
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {**parts, "losses": self.losses, "best": self.best}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.losses, self.best = state["losses"], state["best"]

    def train_one(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.best = min(self.best, loss.item())


with drivetrain.run(checkpoint_every_steps=4) as run:
    trainer = Trainer()
    run.resume(trainer=trainer)
    for epoch in run.epochs(4):
        for x, y in epoch.steps(DataLoader(points(), 8, shuffle=True)):
            trainer.train_one(x, y)
            run.log(loss=trainer.losses[-1], best=trainer.best)
    torch.save(trainer.state_dict(), "checkpoint.pt")
