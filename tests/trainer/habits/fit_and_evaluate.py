"""`compile`, `fit` with callbacks and `evaluate`; the history is that of all epochs."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, random_split

import drivetrain


class Model(nn.Sequential):
    def compile(self, optimizer, loss):
        self.loss = loss
        self.optimizer = optimizer(self.parameters())

    def fit(self, data, epochs, validation, callbacks):
        run.resume(model=self, optimizer=self.optimizer)
        history = run.state(loss=[], val_loss=[], stops=False, best=float("inf"), waited=0)
        for epoch in run.epochs(epochs):
            mean = epoch.state(total=0.0, batches=0)
            self.train()
            for x, y in epoch.steps(DataLoader(data, 6, shuffle=True)):
                loss = self.loss(self(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                mean.total += loss.item()
                mean.batches += 1
            history.loss.append(mean.total / mean.batches)
            history.val_loss.append(self.evaluate(validation))
            run.log(loss=history.loss[-1], val_loss=history.val_loss[-1])
            for callback in callbacks:
                callback(self, history)
            if history.stops:
                break
        return history

    @torch.no_grad()
    def evaluate(self, data):
        self.eval()
        x, y = data[:]
        return self.loss(self(x), y).item()


def early_stopping(model, history):
    history.waited += 1
    if history.val_loss[-1] < history.best - 1e-3:
        history.best, history.waited = history.val_loss[-1], 0
        torch.save(model.state_dict(), "best.pt")
    history.stops = history.waited >= 3


def reduce_rate(model, history):
    if history.waited:
        model.optimizer.param_groups[0]["lr"] *= 0.5


torch.manual_seed(20)
train, validation = random_split(points(), [36, 12])
with drivetrain.run(checkpoint_every_steps=3) as run:
    model = Model(nn.Linear(6, 8), nn.Dropout(0.3), nn.ELU(), nn.Linear(8, 2))
    model.compile(lambda p: torch.optim.Adam(p, lr=0.1), nn.functional.cross_entropy)
    history = model.fit(train, 6, validation, [early_stopping, reduce_rate])
torch.save([model.state_dict(), vars(history)], "last.pt")
