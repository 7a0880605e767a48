"""Processes by identity and by marker: which run, which belong to a pod, and a reliable kill.

A pid alone identifies nothing, because it is reused; (boot, pid, start time) does. The environment
of a process, which no other process can change, proves that it belongs to the pod: a file in the
pod's directory that names a process may be forged. Signals go through a pidfd that was opened
before the last check, so they cannot reach another process.
"""

import contextlib
import errno
import functools
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from drivetrain_schemas.pods import MARKER, PodIdentity

_MARKER_ENTRY = re.compile(
    rb"(?:^|\0)" + MARKER.encode() + rb"=(pod_[a-z2-7]{26}_\d+_\d+@[0-9a-f]{16})(?![\w-])"
)
_PROC = Path("/proc")
_KILL_PERIOD_SECONDS = 0.02
_GONE = (b"Z", b"X")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process of this user, not a zombie. `marker` is None where it has none."""

    pid: int
    parent: int
    start_ticks: int
    marker: str | None


@functools.cache  # of this boot, so it is the same as long as this process lives
def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; None when it is gone or a zombie."""
    stat = _stat(pid)
    return None if stat is None else stat[1]


def state(identity: PodIdentity) -> bytes | None:
    """The letter of its state, `T` or `t` where a signal has stopped it; None when it is gone."""
    fields = _fields(identity.pid) if identity.boot_id == boot_id() else None
    if fields is None or fields[0] in _GONE or int(fields[19]) != identity.start_ticks:
        return None
    return fields[0]


def is_shim(identity: PodIdentity, marker: str) -> bool:
    """The process runs and is this pod's: it has the marker and belongs to our user."""
    return (
        state(identity) is not None and _is_ours(identity.pid) and _marker(identity.pid) == marker
    )


def send(identity: PodIdentity, marker: str, number: signal.Signals) -> bool:
    """Signal exactly this process of the pod; False when it is gone, or was never the pod's."""
    return is_shim(identity, marker) and _signal(identity.pid, identity.start_ticks, number)


def census() -> Mapping[int, Process]:
    """Every running process of this user on this machine."""
    found = {}
    for pid in _pids():
        if _is_ours(pid):
            stat = _stat(pid)
            if stat is not None:
                found[pid] = Process(pid, *stat, _marker(pid))
    return found


def of_pod(everything: Mapping[int, Process], marker: str) -> frozenset[int]:
    """The processes that carry the marker, and all below them, whatever those carry.

    A program can start others with an empty environment. They stay below the pod's shim while it
    runs, because orphans become its children.
    """
    found = {pid for pid, process in everything.items() if process.marker == marker}
    level = found
    while level:
        level = {pid for pid, it in everything.items() if it.parent in level} - found
        found = found | level
    return frozenset(found)


def kill_marked(markers: frozenset[str], timeout: float) -> frozenset[str]:
    """Kill until no process of these pods is left; returns those for which this was confirmed.

    All are stopped first and then killed together: a process without the marker is only found while
    its parent runs. Two empty scans in a row are required, because a process can fork during one.
    """
    start = time.monotonic()
    num_empty = dict.fromkeys(markers, 0)
    stopped: set[tuple[int, int]] = set()
    while True:
        everything = census()
        left = {marker: of_pod(everything, marker) for marker in markers}
        num_empty = {mark: 0 if left[mark] else num + 1 for mark, num in num_empty.items()}
        gone = frozenset(marker for marker, num in num_empty.items() if num >= 2)
        seconds = time.monotonic() - start
        if gone == markers or seconds > timeout:
            return gone
        doomed = {(pid, everything[pid].start_ticks) for pids in left.values() for pid in pids}
        can_kill = doomed <= stopped or seconds > timeout / 2
        for pid, ticks in doomed if can_kill else doomed - stopped:
            _signal(pid, ticks, signal.SIGKILL if can_kill else signal.SIGSTOP)
        stopped |= doomed
        time.sleep(_KILL_PERIOD_SECONDS)


def _signal(pid: int, ticks: int, number: signal.Signals) -> bool:
    """Signal the process that started then; False when it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):  # gone, or no process but a thread
            return False
        raise  # an error of this machine
    try:
        if start_ticks(pid) != ticks:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        return True
    finally:
        os.close(handle)


def _pids() -> Iterator[int]:
    for name in os.listdir(_PROC):
        if name.isdigit():
            yield int(name)


def _is_ours(pid: int) -> bool:
    try:
        return (_PROC / str(pid)).stat().st_uid == os.geteuid()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _stat(pid: int) -> tuple[int, int] | None:
    """Its parent, and when it started; None when it is gone or a zombie."""
    fields = _fields(pid)
    if fields is None or fields[0] in _GONE:
        return None
    return int(fields[1]), int(fields[19])


def _fields(pid: int) -> list[bytes] | None:
    """Its state, its parent and what follows; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.readall()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may hold any bytes and brackets; what follows the last bracket is fixed.
    return stat[stat.rindex(b")") + 2 :].split()


def _marker(pid: int) -> str | None:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or not dumpable
        return None
    match = _MARKER_ENTRY.search(environment)
    return match[1].decode() if match else None
