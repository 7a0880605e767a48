"""Waiting for a condition, with a limit, and a message about what was awaited."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None], what: str, *, seconds: float = 60.0, every: float = 0.1
) -> T:
    """The first true value of `condition`. Fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(every)
