"""A trainer class with hooks owns the loop and calls `advance()` after each step."""

import torch
from data import points
from torch import nn

import drivetrain


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


class Trainer:
    def __init__(self, run: drivetrain.Run, max_steps: int) -> None:
        self.run, self.max_steps = run, max_steps

    def batch(self, step: int):
        """The order depends on the number of the pass only, so that any step can come first."""
        x, y = points().tensors
        number, begin = divmod(step * 6, len(x))
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(number))
        return x[order[begin : begin + 6]], y[order[begin : begin + 6]]

    def fit(self, module: Module) -> None:
        optimizer = module.configure_optimizers()
        self.run.resume(module=module, optimizer=optimizer)
        while self.run.step < self.max_steps:
            loss = module.training_step(self.batch(self.run.step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.run.log(loss=loss)
            if (self.run.step + 1) % 8 == 0:
                self.run.log(norm=sum(p.norm() for p in module.parameters()))
            self.run.advance()


with drivetrain.run(seed=11, checkpoint_every_steps=3) as run:
    module = Module()
    Trainer(run, max_steps=28).fit(module)
    torch.save(module.state_dict(), "last.pt")
