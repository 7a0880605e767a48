"""Files in the pod's directory, where the job's own programs can put anything: a pipe, a link,
a directory, an endless file. None of these may block the shim.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_bounded(path: Path, max_bytes: int) -> bytes | None:
    """A regular file's content; None where nothing exists. Raises OSError or ValueError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return None
    with _regular(descriptor, path, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path.name} has more than {max_bytes} bytes")
    return content


def open_to_append(path: Path) -> BinaryIO:
    """A regular file, created where nothing exists. Raises OSError or ValueError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
    return _regular(descriptor, path, "ab")


def _regular(descriptor: int, path: Path, mode: str) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is no regular file")
    return os.fdopen(descriptor, mode, buffering=0)  # type: ignore[return-value]
