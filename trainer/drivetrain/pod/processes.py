"""The processes below a shim: adopting, finding, killing, and telling who one is.

A shim is a subreaper: whatever a rank starts and abandons becomes the shim's child. So a shim
without children has no descendants, and that is how it knows that a pod is gone.
"""

import ctypes
import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

from drivetrain_schemas.pods import PodIdentity

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def hold_lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None when another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def identify_self() -> PodIdentity:
    stat = Path("/proc/self/stat").read_text()
    # The command may hold spaces and brackets; what follows the last bracket is fixed.
    ticks = int(stat[stat.rindex(")") + 2 :].split()[19])
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return PodIdentity(boot_id=boot_id, pid=os.getpid(), start_ticks=ticks)


def descendants(root: int) -> set[int]:
    """All living processes below `root`."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError):
                stat = Path(f"/proc/{name}/stat").read_text()
                parents[int(name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
    found = {root}
    grew = True
    while grew:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        grew = bool(below)
    return found - {root}


def kill_descendants() -> None:
    """Kill once everything below this process; what was just forked is met by the next call."""
    for pid in descendants(os.getpid()):
        # Its parent is us or dies with it, so the number cannot have been given to another yet.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
