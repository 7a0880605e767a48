"""Trains by steps and keeps its own files beside the code, as scripts do that know no platform.

Each step appends a line to `log.csv`; every fifth replaces `model.pt`. KILL_AT as in `by_steps`.
"""

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

import drivetrain

torch.set_num_threads(1)


def main() -> None:
    with drivetrain.run(max_steps=30, checkpoint_every_steps=10) as run:
        assert run.directory == Path.cwd()
        model = nn.Linear(2, 1)
        run.resume(model=model)
        for step in run.steps():
            with open("log.csv", "a") as log:
                log.write(f"{run.step}\n")
            if run.step % 5 == 0:
                torch.save({"step": run.step}, "model.pt")
            if run.step % 10 == 5:
                while run._checkpointer.is_saving:
                    time.sleep(0.001)
            if step == int(os.environ.get("KILL_AT", "-1")):
                os.kill(os.getpid(), signal.SIGKILL)
    Path("report.txt").write_text("complete")


if __name__ == "__main__":
    main()
