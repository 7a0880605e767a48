"""Processes by identity and by marker: who is alive, who belongs to a pod, and killing for sure.

A pid alone proves nothing, for it is reused; (boot, pid, start time) does. Signals go through a
pidfd that was opened before the last look, so they cannot hit a successor.
"""

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from drivetrain_schemas.pods import PodIdentity

MARKER = "DRIVETRAIN_POD_MARKER"
_MARKER_ENTRY = re.compile(
    rb"(?:^|\0)" + MARKER.encode() + rb"=(pod_[a-z2-7]{26}_\d+_\d+)(?![\w-])"
)
_PROC = Path("/proc")


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
    """The living processes of every pod on this machine, by pod id."""
    found: dict[str, set[int]] = {}
    for pid in _pids():
        pod_id = _marker(pid)
        if pod_id is not None:
            found.setdefault(pod_id, set()).add(pid)
    return {pod_id: frozenset(pids) for pod_id, pids in found.items()}


def kill_marked(pod_ids: frozenset[str], timeout: float) -> frozenset[str]:
    """Kill until nothing carries these markers; returns the pods of which nothing is left.

    Two empty looks in a row are asked for: a process can fork while it is being looked for.
    """
    deadline = time.monotonic() + timeout
    num_empty = dict.fromkeys(pod_ids, 0)
    while True:
        left = {pod_id: pids for pod_id, pids in marked().items() if pod_id in pod_ids}
        num_empty = {pod: 0 if pod in left else num + 1 for pod, num in num_empty.items()}
        gone = frozenset(pod for pod, num in num_empty.items() if num >= 2)
        if gone == pod_ids or time.monotonic() > deadline:
            return gone
        for pod_id, pids in left.items():
            for pid in pids:
                _kill(pid, pod_id)
        time.sleep(0.02)


def _kill(pid: int, pod_id: str) -> None:
    handle = _handle(pid)
    if handle is None:
        return
    try:
        if _marker(pid) == pod_id:
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
