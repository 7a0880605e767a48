"""A job without a model for studies: its loss is an offset and a curve that all trials share.

Trials with a larger offset are slower, so they come to a rung after the better ones.
"""

import time

from torch import nn

import drivetrain

with drivetrain.run(max_steps=90, hyperparameters={"offset": 0.5}) as run:
    offset = run.hyperparameters["offset"]
    run.resume(model=nn.Linear(1, 1))  # without state there would be no checkpoint
    for step in run.steps():
        time.sleep(0.04 * (1 + 4 * offset))
        run.log(loss=offset + 1 / step)
        print(f"step {step}", flush=True)
