"""How many files of old samples a day leaves: few small ones, however little or much is logged."""

from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import accumulate, takewhile

import pytest

from services.metrics.cold.store import OldChunk
from services.metrics.cold.tiering import (
    MAX_FILE_SAMPLES,
    MAX_WAIT,
    MIN_FILE_SAMPLES,
    Policy,
    _is_due,
)

POLICY = Policy(after=timedelta(hours=24))
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NUM_DAYS = 3


def num_files(samples_a_minute: int) -> int:
    """A pass each minute, as `Tierer` makes it: file after file, until what waits is not due."""
    waiting: deque[tuple[datetime, int]] = deque()
    count = 0
    for minute in range(NUM_DAYS * 24 * 60):
        now = BEGIN + timedelta(minutes=minute)
        waiting.append((now, samples_a_minute))
        while True:
            before = accumulate((num for _, num in waiting), initial=0)
            taken = list(
                takewhile(lambda one: one[1] < MAX_FILE_SAMPLES, zip(waiting, before, strict=False))
            )
            old = [OldChunk(0, num, at, now - at) for (at, num), _ in taken]
            if not _is_due(old, POLICY):
                break
            count += 1
            for _ in old:
                waiting.popleft()
    return count


@pytest.mark.parametrize("samples_a_minute", [1, 100, 5_000, 100_000])
def test_a_day_leaves_four_small_files_at_most(samples_a_minute: int) -> None:
    num_samples = samples_a_minute * NUM_DAYS * 24 * 60
    num_small = NUM_DAYS * timedelta(days=1) / MAX_WAIT
    assert 0 < num_files(samples_a_minute) <= num_small + num_samples / MIN_FILE_SAMPLES
