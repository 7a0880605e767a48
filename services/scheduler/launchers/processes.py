"""Processes by identity and by marker: who is alive, who belongs to a pod, and killing for sure.

A pid alone proves nothing, for it is reused; (boot, pid, start time) does. Signals go through a
pidfd that was opened before the last look, so they cannot hit a successor.
"""

import contextlib
import errno
import functools
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from drivetrain_schemas.pods import MARKER, PodIdentity

_MARKER_ENTRY = re.compile(
    rb"(?:^|\0)" + MARKER.encode() + rb"=(pod_[a-z2-7]{26}_\d+_\d+@[0-9a-f]{16})(?![\w-])"
)
_PROC = Path("/proc")


@functools.cache  # of this boot, so it is the same as long as this process lives
def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; None when it is gone or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may hold any bytes and brackets; what follows the last bracket is fixed.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(identity: PodIdentity) -> bool:
    return identity.boot_id == boot_id() and start_ticks(identity.pid) == identity.start_ticks


def send(identity: PodIdentity, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone."""
    handle = _handle(identity.pid)
    if handle is None:
        return False
    try:
        if not is_alive(identity):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        return True
    finally:
        os.close(handle)


def marked() -> Mapping[str, frozenset[int]]:
    """The living processes of every pod on this machine, by the pod's marker."""
    found: dict[str, set[int]] = {}
    for pid in _pids():
        marker = _marker(pid)
        if marker is not None:
            found.setdefault(marker, set()).add(pid)
    return {marker: frozenset(pids) for marker, pids in found.items()}


def kill_marked(markers: frozenset[str], timeout: float) -> frozenset[str]:
    """Kill until nothing carries these markers; returns those that nothing carries any more.

    Two empty looks in a row are asked for: a process can fork while it is being looked for.
    """
    deadline = time.monotonic() + timeout
    num_empty = dict.fromkeys(markers, 0)
    while True:
        left = {marker: pids for marker, pids in marked().items() if marker in markers}
        num_empty = {mark: 0 if mark in left else num + 1 for mark, num in num_empty.items()}
        gone = frozenset(marker for marker, num in num_empty.items() if num >= 2)
        if gone == markers or time.monotonic() > deadline:
            return gone
        for marker, pids in left.items():
            for pid in pids:
                _kill(pid, marker)
        time.sleep(0.02)


def _kill(pid: int, marker: str) -> None:
    handle = _handle(pid)
    if handle is None:
        return
    try:
        if _marker(pid) == marker:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def _handle(pid: int) -> int | None:
    """None when it is gone, or no process but a thread. Raises OSError when this machine fails."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):
            return None
        raise


def _pids() -> Iterator[int]:
    for name in os.listdir(_PROC):
        if name.isdigit():
            yield int(name)


def _marker(pid: int) -> str | None:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or another user's
        return None
    match = _MARKER_ENTRY.search(environment)
    return match[1].decode() if match else None
