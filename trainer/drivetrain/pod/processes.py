"""The processes below a shim: adopting, finding, killing and identifying them.

A shim is a subreaper: whatever a rank starts and abandons becomes the shim's child. So a shim
without children has no descendants, which proves that the pod is gone.
"""

import ctypes
import fcntl
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drivetrain_schemas.pods import PodIdentity

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def hold_lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it is closed; None when another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def identify_self() -> PodIdentity:
    ticks = int(stat_fields("self")[19])
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return PodIdentity(boot_id=boot_id, pid=os.getpid(), start_ticks=ticks)


@dataclass(frozen=True, slots=True)
class Process:
    parent: int
    start_ticks: int


def table() -> dict[int, Process]:
    """All running processes of this machine, by id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError):
                fields = stat_fields(name)
                found[int(name)] = Process(int(fields[1]), int(fields[19]))
    return found


def descendants(root: int) -> dict[int, int]:
    """All running processes below `root`, parents first, each with its start time.

    Killed in this order, no parent can react to its child's end or start another.
    """
    running = table()
    found: dict[int, int] = {}
    level = {root}
    while level:
        known = {root, *found}
        level = {p for p, process in running.items() if process.parent in level and p not in known}
        found |= {pid: running[pid].start_ticks for pid in level}
    return found


def kill_descendants() -> None:
    """Kill everything below this process once; the next call finds what was just forked."""
    for pid, start_ticks in descendants(os.getpid()).items():
        with suppress(OSError):  # gone meanwhile
            signal_process(pid, start_ticks, signal.SIGKILL)


def signal_process(pid: int, start_ticks: int, number: int) -> None:
    """Send a signal to the process that was seen under this id. Raises OSError if it is gone."""
    handle = os.pidfd_open(pid)
    try:
        # The pid may belong to another process by now; the pidfd refers to the one seen here.
        if int(stat_fields(str(pid))[19]) == start_ticks:
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def program(pid: int) -> str:
    """The name of its executable; empty where it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe").rpartition("/")[2]
    except OSError:
        return ""


def stat_fields(process: str) -> list[bytes]:
    """The fields of its /proc entry after its name, which may hold any bytes and brackets."""
    stat = Path(f"/proc/{process}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()
