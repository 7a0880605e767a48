"""Who may ask the template for a pod: the process that its parent names, and no other.

The parent says which on a socket, in messages `{"pid": N, "start_ticks": N}`; the kernel says which
process made a connection. Programs of pods have the user of the template and could read a secret
from its environment, its files or a pipe, but a socket of another process cannot be opened in
/proc. A refused request becomes a line of JSON on standard error and a text for the parent.
"""

import json
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from drivetrain.pod import processes
from drivetrain_schemas.pods import MARKER

_CREDENTIALS = struct.Struct("3i")  # of the kernel: pid, uid, gid
_MAX_MESSAGE_BYTES = 4096
_MAX_PROGRAM_BYTES = 200
_REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    start_ticks: int


class Admission:
    def __init__(self, parent: socket.socket) -> None:
        self.parent = parent
        self.parent.setblocking(False)
        self._parent_pid = os.getppid()
        self._caller: _Process | None = None
        self._report_at = 0.0
        self._num_unreported = 0

    def hear(self) -> bool:
        """Read which process is the caller now; whether one was named. Exits where the parent is
        gone.
        """
        is_named = False
        try:
            while message := self.parent.recv(_MAX_MESSAGE_BYTES):
                self._caller, is_named = _Process(**json.loads(message)), True
        except BlockingIOError:
            return is_named
        except ConnectionError:
            pass
        sys.exit("the process that started the template is gone")

    def admits(self, connection: socket.socket) -> bool:
        """Whether the caller made this connection. The attempt of any other process is reported,
        except the parent's, which connects to see that the template answers.
        """
        pid, uid, _ = _credentials(connection)
        if self._caller is not None and _running(pid) == self._caller:
            return True
        if pid != self._parent_pid:
            self._report(pid, uid)
        return False

    def _report(self, pid: int, uid: int) -> None:
        """At most once in a second: a program can ask thousands of times."""
        self._num_unreported += 1
        if time.monotonic() < self._report_at:
            return
        self._report_at = time.monotonic() + _REPORT_SECONDS
        line = {
            "event": "request refused: not from the scheduler",
            "level": "warning",
            "service": "template",
            "timestamp": datetime.now(UTC).isoformat(),
            "pid": pid,
            "uid": uid,
            "program": _program(pid),
            "pod_marker": _marker(pid),
            "num_requests": self._num_unreported,
        }
        self._num_unreported = 0
        with suppress(OSError):  # a full disk
            print(json.dumps(line), file=sys.stderr, flush=True)
        with suppress(OSError):  # a parent that does not read
            self.parent.send(f"refused a request of process {pid}, {line['program']!r}".encode())


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(option)
    return pid, uid, gid


def _running(pid: int) -> _Process | None:
    """The process that has this pid now."""
    try:
        return _Process(pid, int(processes.stat_fields(str(pid))[19]))
    except (OSError, ValueError, IndexError):
        return None


def _program(pid: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()[:_MAX_PROGRAM_BYTES]
        return command.replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def _marker(pid: int) -> str:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == MARKER.encode():
                return value[:_MAX_PROGRAM_BYTES].decode(errors="replace")
    return ""
