"""Which processes get the stop signal of a pod.

The process of each rank, and what a shell runs: a shell passes no signal on and leaves its program
behind. Other programs end their workers themselves; one that is terminated would fail the training
that uses it. What has lost its parent gets it as well.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from drivetrain.pod import processes
from drivetrain.pod.processes import Process

_SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh", "fish", "busybox"})


class StopSignal:
    """Sends SIGTERM once to each process that it reaches."""

    def __init__(self) -> None:
        self._told: set[tuple[int, int]] = set()

    def send(self) -> None:
        """To be called again while the pod stops: processes lose their parents meanwhile."""
        table = processes.table()
        for pid in reached(table, os.getpid(), processes.program):
            key = (pid, table[pid].start_ticks)
            if key not in self._told:
                self._told.add(key)
                with suppress(OSError):  # gone meanwhile
                    processes.signal_process(pid, table[pid].start_ticks, signal.SIGTERM)


def reached(
    table: Mapping[int, Process], shim: int, program: Callable[[int], str]
) -> Iterator[int]:
    """The shim's children are the ranks and what has lost its parent."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    waiting = list(children.get(shim, ()))
    while waiting:
        pid = waiting.pop()
        yield pid
        if program(pid) in _SHELLS:
            waiting += children.get(pid, ())
