"""Calls side by side."""

import threading

import pytest

from drivetrain.files.threads import NUM_THREADS, side_by_side


def test_calls_run_side_by_side_and_results_keep_their_order() -> None:
    together = threading.Barrier(NUM_THREADS, timeout=30)

    def call(item: int) -> int:
        together.wait()  # passes only while all threads are in a call
        return -item

    items = range(3 * NUM_THREADS)
    assert side_by_side(call, items) == [-item for item in items]


def test_the_first_error_ends_it() -> None:
    calls: list[int] = []

    def call(item: int) -> None:
        calls.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"\d"):
        side_by_side(call, range(1000))
    assert len(calls) <= NUM_THREADS
    assert side_by_side(call, []) == []
