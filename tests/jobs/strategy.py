"""A job without a model for studies: its loss follows from its hyperparameters and the step alone.

The step after a rung comes `settle_seconds` later, and no step before the save of the last one is
over: a save that is due meanwhile would wait for the step after. With `limits`, a directory, there
is no step beyond the number in the file there that is named as the job. A job that is to stop waits
for none of these. The weight is the sum of `a` over all steps, so it tells from which checkpoint a
trial began.
"""

import os
import time
from pathlib import Path

import torch
from torch import nn

import drivetrain

DEFAULTS = {"a": 0.5, "b": 0.5, "settle_seconds": 0.0, "limits": "", "rung": 3}


def limit_in(directory: str) -> int:
    try:
        return int((Path(directory) / os.environ["DRIVETRAIN_JOB_ID"]).read_text())
    except FileNotFoundError:
        return 0


with drivetrain.run(max_steps=9, hyperparameters=DEFAULTS) as run:
    given = run.hyperparameters
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    run.resume(model=model)
    print(f"began with {model.weight.item():.6f}", flush=True)
    is_first = True
    for step in run.steps():
        is_after_rung = step > 1 and (is_first or step % given["rung"] == 1)
        is_first = False
        free_at = time.monotonic() + given["settle_seconds"] * is_after_rung
        while time.monotonic() < free_at and run._stop.reason is None:
            time.sleep(0.05)
        while run._checkpointer.is_saving and run._stop.reason is None:
            time.sleep(0.01)
        while given["limits"] and limit_in(given["limits"]) < step and run._stop.reason is None:
            time.sleep(0.1)
        with torch.no_grad():
            model.weight += given["a"]
        a, b = given["a"], given["b"]
        run.log(loss=(a - 0.3) ** 2 + (b - 0.7) ** 2 / 2 + (0.2 + a) / step)
        print(f"step {step}", flush=True)
