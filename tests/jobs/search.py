"""A job without a model for studies: its loss is an offset and a curve that all trials share.

Trials with a larger offset are slower, so they come to a rung after the better ones. With
`settle_seconds`, a trial waits so long after step 10, the first rung, for what is decided there.
"""

import time

from torch import nn

import drivetrain

with drivetrain.run(max_steps=90, hyperparameters={"offset": 0.5, "settle_seconds": 0.0}) as run:
    offset = run.hyperparameters["offset"]
    # Without state there would be no checkpoint.
    is_resumed = run.resume(model=nn.Linear(1, 1))
    for step in run.steps():
        free_at = time.monotonic() + run.hyperparameters["settle_seconds"]
        while step == 11 and not is_resumed and time.monotonic() < free_at:
            if run._stop.reason is not None:
                break
            time.sleep(0.05)
        time.sleep(0.04 * (1 + 4 * offset))
        run.log(loss=offset + 1 / step)
        print(f"step {step}", flush=True)
