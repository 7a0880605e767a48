"""As in a pod: every 7 steps rank 0 logs the judged metric, which is the best at step 28.

A weight holds the number of its step. MODE is steps or epochs (of 7 steps); SHARE is the share of
the time that saves at the best may take.
"""

import os
import time
from collections.abc import Iterator

from torch import nn

import drivetrain
from drivetrain import best_saves

best_saves.MAX_SHARE = float(os.environ["SHARE"])


def steps_of(run: drivetrain.Run) -> Iterator[None]:
    """Every step, and at each seventh one an evaluation."""
    if os.environ["MODE"] == "epochs":
        for epoch in run.epochs(8):
            for _ in epoch.steps([0] * 7):
                yield
            evaluate(run)
        return
    for number in run.steps():
        yield
        if number % 7 == 0:
            evaluate(run)


def evaluate(run: drivetrain.Run) -> None:
    if run.rank == 0:
        run.log(score=-abs(run.step - 28))


def main() -> None:
    with drivetrain.run(max_steps=56) as run:
        model = nn.Linear(1, 1)
        run.resume(model=model)
        for _ in steps_of(run):
            nn.init.constant_(model.weight, run.step)
            time.sleep(0.02)  # steps so slow that ranks agree at least every 25
            while run._checkpointer.is_saving:
                time.sleep(0.001)


if __name__ == "__main__":
    main()
