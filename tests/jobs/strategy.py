"""A job without a model for studies: its loss follows from its hyperparameters and the step alone.

The step after a rung comes `settle_seconds` later, so the search can decide before it, and while
the file `hold` exists there is no step at all. The weight is the sum of `a` over all steps, so it
tells from which checkpoint a trial began.
"""

import time
from pathlib import Path

import torch
from torch import nn

import drivetrain

DEFAULTS = {"a": 0.5, "b": 0.5, "settle_seconds": 0.0, "hold": "", "rung": 3}


def settle(hold: str, seconds: float) -> None:
    """Wait until there was no file `hold` for as long."""
    free_at = time.monotonic() + seconds
    while time.monotonic() < free_at:
        if hold and Path(hold).exists():
            free_at = time.monotonic() + seconds
        time.sleep(0.05)


with drivetrain.run(max_steps=9, hyperparameters=DEFAULTS) as run:
    given = run.hyperparameters
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    run.resume(model=model)
    print(f"began with {model.weight.item():.6f}", flush=True)
    is_first = True
    for step in run.steps():
        is_after_pause = is_first and step > 1
        if is_after_pause or step % given["rung"] == 1:
            settle(given["hold"], given["settle_seconds"] if step > 1 else 0.1)
        is_first = False
        with torch.no_grad():
            model.weight += given["a"]
        a, b = given["a"], given["b"]
        run.log(loss=(a - 0.3) ** 2 + (b - 0.7) ** 2 / 2 + (0.2 + a) / step)
        print(f"step {step}", flush=True)
