"""A library's trainer that knows callbacks only: the boundary and the log are one of them."""

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain


class Callback:
    def __init__(self, run: drivetrain.Run) -> None:
        self.run = run

    def on_step_end(self, logs: dict[str, float]) -> None:
        self.run.log(logs)  # before: the checkpoint of this step holds these values
        self.run.advance()


class LibraryTrainer:
    """Skips the batches that were trained before, as such trainers do on a resume."""

    def __init__(self, model, optimizer, schedule, callback, done: int) -> None:
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.callback, self.done = callback, done

    def train(self, epochs: int) -> None:
        global_step = 0
        for epoch in range(epochs):
            shuffle = torch.Generator().manual_seed(42 + epoch)
            for batch in DataLoader(points(), 8, shuffle=True, generator=shuffle):
                global_step += 1
                if global_step <= self.done:
                    continue
                self.training_step(*batch)

    def training_step(self, x, y) -> None:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.callback.on_step_end({"loss": loss.item(), "rate": self.schedule.get_last_lr()[0]})


with drivetrain.run(checkpoint_every_steps=5) as run:
    torch.manual_seed(42)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 5))
    run.resume(model=model, optimizer=optimizer, schedule=warm_up)
    LibraryTrainer(model, optimizer, warm_up, Callback(run), run.step).train(epochs=4)
    torch.save(model.state_dict(), "pytorch_model.pt")
