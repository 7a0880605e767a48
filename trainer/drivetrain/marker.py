"""The marker that identifies every process of a pod (`drivetrain_schemas.pods.marker_of`).

It is read in /proc/PID/environ, which shows the environment a process was started with. A process
that was forked without exec shows its parent's, so the template reserves the variable with padding
and the forked shim overwrites that memory in place; its children inherit it.
"""

import ctypes
import os

from drivetrain_schemas.pods import MARKER

PADDING = "-" * 96


def overwrite(marker: str) -> None:
    """Put the marker where the padding of the inherited environment was."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(MARKER.encode())
    if address is None or ctypes.string_at(address) != PADDING.encode():
        raise RuntimeError(f"{MARKER} was not reserved")
    ctypes.memmove(address, marker.encode().ljust(len(PADDING), b"\0"), len(PADDING))
    os.environ[MARKER] = marker
