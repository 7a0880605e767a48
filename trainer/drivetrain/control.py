"""The socket between ranks and their shim: newline-delimited JSON, both ways.

The path of a pod's directory may exceed the 107 bytes of a unix socket's address, so both ends use
a descriptor of the directory.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_LINE_BYTES = 1024 * 1024
BACKLOG = 128


def connect(path: str | os.PathLike[str]) -> socket.socket:
    """A connected socket. Raises OSError if nothing listens."""
    return _with_short_path(path, socket.socket.connect)


def listen(path: str | os.PathLike[str]) -> socket.socket:
    """A listening socket, open to its owner only."""

    def bind(listener: socket.socket, address: str) -> None:
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen(BACKLOG)

    return _with_short_path(path, bind)


def _with_short_path(
    path: str | os.PathLike[str], use: Callable[[socket.socket, str], Any]
) -> socket.socket:
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(Path(path)) as address:
            use(endpoint, address)
    except BaseException:
        endpoint.close()
        raise
    return endpoint


@contextmanager
def _short(path: Path) -> Iterator[str]:
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


class Lines:
    """Whole lines from received chunks. A line longer than the limit raises ValueError."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return lines
