"""Whom the stop signal of a pod reaches."""

from drivetrain.pod.processes import Process
from drivetrain.pod.stopping import reached

SHIM = 10
# By id: the parent and the program.
RUNNING = {
    SHIM: (1, "python3.11"),
    20: (SHIM, "python3.11"),  # a rank
    21: (20, "python3.11"),  # its DataLoader's worker
    22: (20, "bash"),  # a program of its own
    30: (SHIM, "bash"),  # a rank: bash train.sh
    31: (30, "dash"),
    32: (31, "python3.11"),
    33: (32, "python3.11"),  # its worker
    40: (SHIM, "sleep"),  # has lost its parent
    50: (1, "bash"),  # another pod
    51: (50, "python3.11"),
}


def test_programs_below_shells_and_orphans_are_told_and_workers_are_not() -> None:
    table = {pid: Process(parent, 0) for pid, (parent, _) in RUNNING.items()}
    assert sorted(reached(table, SHIM, lambda pid: RUNNING[pid][1])) == [20, 30, 31, 32, 40]
