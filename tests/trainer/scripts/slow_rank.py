"""Two ranks, of which rank 1 waits for each batch; each prints its own work and the whole step."""

import os
import time
from collections.abc import Iterator

import torch
from torch import nn

import drivetrain

NUM_STEPS = 12


class Batches:
    """Of this rank, two for each step."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __len__(self) -> int:
        return 2 * NUM_STEPS

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(len(self)):
            if self._rank == 1:
                time.sleep(float(os.environ["SLOW_SECONDS"]))
            yield torch.full((4, 4), 1.0 + number + self._rank)


def main() -> None:
    torch.set_num_threads(1)
    with drivetrain.run() as run:
        model = run.parallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        run.resume(model=model, optimizer=optimizer)
        started = time.perf_counter()
        for epoch in run.epochs(1):
            for batches in epoch.steps(Batches(run.rank), accumulate=2):
                optimizer.zero_grad()
                for x in batches:
                    model(x).sum().backward()
                optimizer.step()
        step_seconds = (time.perf_counter() - started) / NUM_STEPS
        print(f"rank {run.rank}: {run._world.own_work.take()} of {step_seconds}")


if __name__ == "__main__":
    main()
