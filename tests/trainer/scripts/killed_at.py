"""Runs a script whose rank 1 is killed after so many optimizer steps as KILL_AT says."""

import itertools
import os
import runpy
import signal
import sys

from torch.optim.optimizer import register_optimizer_step_post_hook

steps = itertools.count(1)


def after_step(*_: object) -> None:
    if next(steps) == int(os.environ["KILL_AT"]) and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)


register_optimizer_step_post_hook(after_step)
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
