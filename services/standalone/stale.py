"""Cleans up after a killed server in its directory: remaining processes, and its pid file.

Only for a holder of the data directory's lock: no other platform can have processes in it. A
process belongs to the directory if it is one of Postgres' programs and its working directory is
there, so neither a reused pid nor a shell in the directory is mistaken for it. Blocking.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

from services.standalone.identity import ProcessIdentity, identify, is_alive, send_signal

PROGRAMS = ("postgres", "initdb")
GONE_TIMEOUT_S = 10.0
POLL_S = 0.02


def end_processes_in(directory: Path) -> int:
    """Kill every process of a server on this directory; returns how many there were.

    Raises RuntimeError when one cannot be ended: two servers on one directory destroy it.
    """
    found = processes_in(directory)
    for process in found:
        send_signal(process, signal.SIGKILL)
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while living := [process.pid for process in found if is_alive(process)]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Processes {living} still use {directory}: end them first.")
        time.sleep(POLL_S)
    return len(found)


def processes_in(directory: Path) -> tuple[ProcessIdentity, ...]:
    try:
        wanted = directory.stat()
    except FileNotFoundError:
        return ()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        # Ended meanwhile, or another user's.
        with contextlib.suppress(OSError):
            program = (entry / "exe").readlink().name
            if program in PROGRAMS and os.path.samestat((entry / "cwd").stat(), wanted):
                identity = identify(int(entry.name))
                if identity is not None:
                    found.append(identity)
    return tuple(found)


def clear_server(data: Path) -> None:
    """End what is left of a Postgres server here, and remove its pid files.

    The server itself trusts the pid in them, which any program may have after a reboot.
    """
    end_processes_in(data)
    for path in (data / "postmaster.pid", *data.glob(".s.PGSQL.*")):
        path.unlink(missing_ok=True)
