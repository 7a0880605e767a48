"""Trains with the ranks that a launcher started, and prints what they know of each other."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn

import drivetrain

torch.set_num_threads(1)


def main() -> None:
    max_steps = int(os.environ.get("MAX_STEPS", "3"))
    with drivetrain.run(max_steps=max_steps, checkpoint_every_steps=10**7) as run:
        model = run.parallel(nn.Linear(2, 1))
        run.resume(model=model)
        total = torch.tensor(run.rank)
        dist.all_reduce(total)
        line = f"rank {run.rank} of {run.world_size}, sum {total.item()}\n"
        print(line, end="", flush=True)  # in one piece: the ranks share their output
        for _ in run.steps():
            model(torch.ones(1, 2)).sum().backward()
            time.sleep(0.01)


if __name__ == "__main__":
    main()
