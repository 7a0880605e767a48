"""The signals that ask a run to stop, and workers that the script forks meanwhile.

A worker must not inherit the handler, which only notes the request: `terminate()` would never end
it. Its own handlers are in place before a signal can reach it.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

_before: dict[int, Any] = {}  # handlers that were there before ours
_masks = threading.local()


def handle(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> None:
    """Call the handler at these signals. To be called from the main thread."""
    for number in numbers:
        _before[number] = signal.signal(number, handler)


def restore() -> None:
    """Put back the handlers that were there before."""
    while _before:
        signal.signal(*_before.popitem())


def _before_fork() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _before)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _after_fork_in_child() -> None:
    restore()
    _after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
