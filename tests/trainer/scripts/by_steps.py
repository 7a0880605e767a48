"""Trains a small net by steps: batch norm, dropout, augmentation, Adam and a schedule.

Variables: KILL_AT and KILL_RANK strike a rank down at a step, STOP_AT sends it SIGTERM; PAUSE is a
sleep per step; WEIGHTS names the file that rank 0 leaves at the end; WORKERS loads in processes.
"""

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import drivetrain

torch.set_num_threads(1)
GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(300, 8, generator=GENERATOR)
TRAIN = TensorDataset(X, (X.sum(1) > 0).long())


def strike(run: drivetrain.Run, every: int) -> None:
    """At the wanted step; `every` so many there is a save, and each is complete before the next."""
    if run.step % every == every // 2:  # trained on beside the save; now let it end
        # Rank 0 learns only with its next step that another rank's part is not coming.
        free_at = time.monotonic() + 20
        while run._checkpointer.is_saving and time.monotonic() < free_at:
            time.sleep(0.001)
    is_meant = run.rank == int(os.environ.get("KILL_RANK", "0"))
    if is_meant and run.step == int(os.environ.get("KILL_AT", "-1")):
        os.kill(os.getpid(), signal.SIGKILL)
    if is_meant and run.step == int(os.environ.get("STOP_AT", "-1")):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(float(os.environ.get("PAUSE", "0")))


def build_net() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2)
    )


def main() -> None:
    hyperparameters = {"learning_rate": 0.05}
    with drivetrain.run(
        max_steps=60, hyperparameters=hyperparameters, checkpoint_every_steps=10
    ) as run:
        model = run.parallel(build_net())
        rate = run.hyperparameters["learning_rate"]
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
        sampler = None
        if run.world_size > 1:
            sampler = DistributedSampler(TRAIN, run.world_size, run.rank)
        workers = int(os.environ.get("WORKERS", "0"))
        loader = DataLoader(TRAIN, 16, sampler=sampler, shuffle=not sampler, num_workers=workers)
        is_resumed = run.resume(model=model, optimizer=optimizer, schedule=schedule)
        print(f"rank {run.rank} begins after step {run.step}", f"({is_resumed})", flush=True)
        for x, y in run.steps(loader):
            loss = nn.functional.cross_entropy(model(x + 0.1 * torch.randn_like(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            run.log(loss=loss)
            strike(run, every=10)
        if run.rank == 0:
            torch.save(model.state_dict(), Path(os.environ["WEIGHTS"]))


if __name__ == "__main__":
    main()
