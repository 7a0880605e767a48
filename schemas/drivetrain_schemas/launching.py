"""Commands that start their own ranks, such as torchrun: the platform starts one process per pod
for them, and for any other command one process per device.

In: a command. Out: which launcher it runs, and how many ranks it asks for. A launcher inside of a
script cannot be seen from here.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

TORCHRUN: Final = "torchrun"
_MODULES = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "accelerate.commands.launch": "accelerate launch",
}
_PROGRAMS = {
    TORCHRUN: TORCHRUN,
    "deepspeed": "deepspeed",
    "horovodrun": "horovodrun",
    "mpirun": "mpirun",
    "mpiexec": "mpiexec",
}
_SHELLS = ("sh", "bash", "dash", "zsh")
# They run the program that follows their options.
_BEFORE_A_PROGRAM = ("env", "exec", "nice", "nohup", "time")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[0-9.]*")
_NUMBER_OF_RANKS = ("--nproc-per-node", "--num-processes", "--num-gpus", "-np", "-n")
# What the platform passes to torchrun: where the ranks are and where they meet.
_PLACE = (
    *("--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port"),
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--local-addr"),
)
_PLACE_FLAG = "--standalone"
_FLAGS = ("--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank")


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts ranks. `num_ranks` is None where the command does not say it."""

    name: str
    num_ranks: int | None = None


def find(command: Sequence[str]) -> Launcher | None:
    """The launcher that this command runs itself, or in the line that it gives to a shell."""
    for words in _programs(command):
        name = _launcher_of(words)
        if name is not None:
            return Launcher(name, _num_ranks(words))
    return None


def mismatch(command: Sequence[str], num_devices: int) -> str:
    """Why this command does not fit the job's devices; empty where it does."""
    launcher = find(command)
    if launcher is None or launcher.num_ranks in (None, num_devices):
        return ""
    return (
        f"{launcher.name} is to start {launcher.num_ranks} ranks, and `resources.devices` is "
        f"{num_devices}: ask for {launcher.num_ranks} devices, or leave the number out"
    )


def without_place(command: Sequence[str]) -> list[str]:
    """A torchrun command without the options that say where its ranks are.

    The platform says it by the variables that torchrun reads (`PET_NNODES` ...).
    """
    words = list(command)
    program = len(words) - len(_without_wrappers(words))
    if _launcher_of(words[program:]) != TORCHRUN:
        return words
    start = words.index("-m") + 2 if _PYTHON.fullmatch(_base(words[program])) else program + 1
    kept = words[:start]
    rest = iter(words[start:])
    for word in rest:
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        if not word.startswith("-"):
            return [*kept, word, *rest]  # the script, and what is its own
        has_value = not equals and name not in _FLAGS
        value = list(islice(rest, 1)) if has_value else []
        if name not in _PLACE and name != _PLACE_FLAG:
            kept += [word, *value]
        if name in ("-m", "--module", "--no-python"):
            return [*kept, *rest]
    return kept


def _programs(command: Sequence[str]) -> Iterator[Sequence[str]]:
    """The command, or each command of a shell's line."""
    if _base(command[0]) not in _SHELLS:
        yield _without_wrappers(command)
        return
    line = next((word for word in command[2:3] if re.fullmatch(r"-[a-z]*c", command[1])), "")
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("();<>|&"):
                yield _without_wrappers(words)
                words = []
            else:
                words.append(word)
    except ValueError:  # the shell will say so
        return


def _without_wrappers(words: Sequence[str]) -> Sequence[str]:
    number = 0
    while number < len(words):
        word = words[number]
        is_option = number > 0 and word.startswith("-")
        if not (is_option or _base(word) in _BEFORE_A_PROGRAM or _ASSIGNMENT.match(word)):
            break
        number += 1
    return words[number:]


def _launcher_of(words: Sequence[str]) -> str | None:
    if not words:
        return None
    program = _base(words[0])
    if program == "accelerate" and "launch" in words[1:2]:
        return "accelerate launch"
    if _PYTHON.fullmatch(program):
        options = [number for number, word in enumerate(words) if not word.startswith("-")][1:2]
        module = options[0] if options else 0
        return _MODULES.get(words[module]) if words[module - 1] == "-m" else None
    return _PROGRAMS.get(program)


def _num_ranks(words: Sequence[str]) -> int | None:
    """None also for `gpu` and `auto`, which mean all devices."""
    for number, word in enumerate(words):
        if word.endswith(".py"):
            return None
        name, _, value = word.partition("=")
        if name.replace("_", "-") in _NUMBER_OF_RANKS:
            value = value or next(iter(words[number + 1 : number + 2]), "")
            return int(value) if value.isdecimal() else None
    return None


def _base(program: str) -> str:
    return program.rpartition("/")[2]
