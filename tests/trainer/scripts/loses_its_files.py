"""Saves at each of four steps: well, without space for copies, without its directory, well."""

import errno
import os
import time

import torch
from torch import nn

import drivetrain
from drivetrain.files import saving

torch.set_num_threads(1)
_copy_bytes = saving._copy_bytes


def no_space(source: int, target: int, size: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def main() -> None:
    with drivetrain.run(max_steps=4, checkpoint_every_steps=1) as run:
        model = nn.Linear(2, 1)
        run.resume(model=model)
        for _ in run.steps():
            while run._checkpointer.is_saving:
                time.sleep(0.001)
            with open(
                run.directory.with_name("away" if run.step == 4 else "work") / "log", "a"
            ) as log:
                log.write(f"{run.step}\n")
            saving._copy_bytes = no_space if run.step == 2 else _copy_bytes
            if run.step == 3:
                run.directory.rename(run.directory.with_name("away"))
            if run.step == 4:
                run.directory.with_name("away").rename(run.directory)


if __name__ == "__main__":
    main()
