"""Runs scripts in children of one process that has imported torch: a script starts in no time.

`python -m tests.trainer.warm_scripts`: a line of JSON per script on standard input (script,
directory, arguments, environments of its ranks), a line with the exit codes of its ranks back. A
rank is stopped for good after so many optimizer steps as STOP_AFTER says, by the signal STOP_BY.
With FORGET a resume does not restore the objects that the script names.
"""

import json
import os
import runpy
import signal
import sys
import threading
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed
import torch.utils.data
from torch.optim.optimizer import register_optimizer_step_post_hook

import drivetrain.training
from drivetrain.held_state import HeldState, Moment, Stored
from drivetrain.pod.interpreter import run_python

load = HeldState.load
PRELOADED = (runpy, drivetrain.training, torch.distributed)  # imported once, for all scripts


def main() -> None:
    torch.compile(torch.square, backend="eager")(torch.ones(1))  # imports the compiler
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


def _run(request: dict) -> list[int]:
    ranks = []
    for environment in request["environments"]:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _become_rank(request, environment)
            finally:
                os._exit(code)
        ranks.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]


def _become_rank(request: dict, environment: dict[str, str]) -> int:
    os.setsid()
    os.chdir(request["directory"])
    os.environ.update(environment)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(1)
    num_steps = _count_optimizer_steps()
    if "FORGET" in os.environ:
        HeldState.load = _load_nothing
    code = run_python([request["script"], *request["arguments"]])
    sys.stdout.flush()
    sys.stderr.flush()
    if environment["RANK"] == "0":
        Path(request["directory"], "num_steps").write_text(str(num_steps[0]))
    return code


def _load_nothing(self: HeldState, first: Stored, own: Stored, has_own: bool) -> Moment:
    things, self._things = self._things, {}
    try:
        return load(self, first, own, has_own)
    finally:
        self._things = things


def _count_optimizer_steps() -> list[int]:
    count = [0]
    parent, stop_after = os.getpid(), int(os.environ.get("STOP_AFTER", "-1"))

    def after_step(*_: object) -> None:
        count[0] += 1
        if count[0] == stop_after and os.getpid() == parent:
            for thread in threading.enumerate():
                if thread.name == "drivetrain-save":
                    thread.join()
            os.kill(os.getpid(), signal.Signals[os.environ["STOP_BY"]])

    register_optimizer_step_post_hook(after_step)
    return count


if __name__ == "__main__":
    main()
