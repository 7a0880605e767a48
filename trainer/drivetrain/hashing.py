"""SHA-256 of bytes while they pass, in a thread beside the one that reads or writes them."""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from queue import Queue
from typing import Any

_MAX_WAITING = 4


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Hashed:
    """The same pieces; after the last one, their length and hash.

    Each iteration starts again. A piece must not change until the end of the iteration.
    """

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces = pieces
        self.num_bytes = 0
        self.sha256 = ""

    def __iter__(self) -> Iterator[Any]:
        self.num_bytes, self.sha256 = 0, ""
        digest = hashlib.sha256()
        waiting: Queue[Any] = Queue(_MAX_WAITING)
        thread = threading.Thread(
            target=_update, args=(digest, waiting), name="drivetrain-hash", daemon=True
        )
        thread.start()
        try:
            for piece in self._pieces:
                waiting.put(piece)
                self.num_bytes += len(piece)
                yield piece
        finally:
            waiting.put(None)
            thread.join()
        self.sha256 = digest.hexdigest()


def _update(digest: "hashlib._Hash", waiting: "Queue[Any]") -> None:
    while (piece := waiting.get()) is not None:
        digest.update(piece)
