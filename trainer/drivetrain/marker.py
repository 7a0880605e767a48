"""The marker by which every process of a pod is known: `DRIVETRAIN_POD_MARKER=<pod id>`.

It is read in /proc/PID/environ, which shows the environment a process was started with. A process
that was forked without exec shows its parent's, so the template reserves the variable with padding
and the forked shim overwrites that memory in place; its children inherit it.
"""

import ctypes
import os
from pathlib import Path

VARIABLE = "DRIVETRAIN_POD_MARKER"
PADDING = "-" * 96


def processes_carrying(marker: str) -> list[int]:
    """Ids of the living processes with this marker."""
    entry = f"\0{VARIABLE}={marker}\0".encode()
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            environment = b"\0" + (directory / "environ").read_bytes() + b"\0"
        except OSError:  # gone, or another user's
            continue
        if entry in environment:
            found.append(int(directory.name))
    return sorted(found)


def overwrite(marker: str) -> None:
    """Put the marker where the padding of the inherited environment was."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(VARIABLE.encode())
    if address is None or ctypes.string_at(address) != PADDING.encode():
        raise RuntimeError(f"{VARIABLE} was not reserved")
    ctypes.memmove(address, marker.encode().ljust(len(PADDING), b"\0"), len(PADDING))
    os.environ[VARIABLE] = marker
