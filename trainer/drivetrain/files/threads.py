"""Calls side by side, for small files: each write to a store waits for its disk or its network."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Each holds one part of a file in memory.
NUM_THREADS = 4


def side_by_side(call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results in the order of the items. Raises the first error; then no call is begun.

    In daemon threads: a store that never answers must not keep the process from ending.
    """
    if len(items) <= 1:
        return [call(item) for item in items]
    results: dict[int, R] = {}
    errors: list[Exception] = []
    remaining = iter(enumerate(items))
    lock = threading.Lock()

    def work() -> None:
        while not errors:
            with lock:
                number, item = next(remaining, (-1, items[0]))
            if number < 0:
                return
            try:
                results[number] = call(item)
            except Exception as error:
                errors.append(error)

    threads = [
        threading.Thread(target=work, name="drivetrain-files", daemon=True)
        for _ in range(min(NUM_THREADS, len(items)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
