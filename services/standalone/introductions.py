"""Tells a child which process may call it, over a socket that is the child's standard input.

In: the caller's identity, whenever it is another process. Out: a message `{"pid", "start_ticks"}`
to the child; each text that the child sends back is given to `hear`. It is a socket, because any
process of the user could open a pipe of the child in /proc, and read it or write to it.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress

from services.standalone.identity import ProcessIdentity

MAX_TEXT_BYTES = 4096


class Introductions:
    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._ours, self.of_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours, self._receive)

    def introduce(self, caller: ProcessIdentity) -> None:
        message = json.dumps({"pid": caller.pid, "start_ticks": caller.start_ticks})
        with suppress(OSError):  # it has ended; the next one is sent it at its start
            self._ours.send(message.encode())

    def close(self) -> None:
        self._loop.remove_reader(self._ours)
        self._ours.close()
        self.of_child.close()

    def _receive(self) -> None:
        text = b""
        with suppress(OSError):
            text = self._ours.recv(MAX_TEXT_BYTES)
        if text:
            self._hear(text.decode(errors="replace"))
        else:
            self._loop.remove_reader(self._ours)  # it has ended
