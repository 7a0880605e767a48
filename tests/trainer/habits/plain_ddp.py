"""The DDP tutorial of PyTorch for `torchrun`: it does not use this package, and keeps its own
snapshot, from which it goes on."""

import os
import sys

import torch
import torch.distributed as dist
from data import points
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Trainer:
    def __init__(self, model: nn.Module, data: DataLoader, optimizer, snapshot: str) -> None:
        self.rank = int(os.environ["RANK"])
        self.data, self.optimizer, self.snapshot = data, optimizer, snapshot
        self.model, self.epochs_run = model, 0
        self.losses: list[float] = []
        if os.path.exists(snapshot):
            self.load()
        self.model = DistributedDataParallel(self.model)

    def load(self) -> None:
        snapshot = torch.load(self.snapshot)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run, self.losses = snapshot["EPOCHS_RUN"], snapshot["LOSSES"]
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}", flush=True)

    def save(self) -> None:
        snapshot = {
            "MODEL_STATE": self.model.module.state_dict(),
            "OPTIMIZER_STATE": self.optimizer.state_dict(),
            "EPOCHS_RUN": self.epochs_run,
            "LOSSES": self.losses,
        }
        torch.save(snapshot, f"{self.snapshot}.new")
        os.replace(f"{self.snapshot}.new", self.snapshot)

    def train(self, max_epochs: int) -> None:
        while self.epochs_run < max_epochs:
            self.data.sampler.set_epoch(self.epochs_run)
            for source, targets in self.data:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(source), targets)
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
            self.epochs_run += 1
            print(f"Rank {self.rank} | Epoch {self.epochs_run} | Loss {loss.item()}", flush=True)
            if self.rank == 0:
                self.save()


def main(max_epochs: int, batch_size: int) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = DataLoader(points(), batch_size, sampler=DistributedSampler(points()))
    Trainer(model, data, optimizer, "snapshot.pt").train(max_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
