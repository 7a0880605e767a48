"""A sender's quota: what is over the rate has no room, and what is under it always has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.quota import (
    BURST_SECONDS,
    Bucket,
    filled,
    full,
    has_room,
    is_full,
    of_slot,
    slot_of,
    taken,
)

RATE = 100.0
BURST = RATE * BURST_SECONDS


def written(gaps: list[float], cost: float) -> float:
    """How much is stored of records of this cost, each so many seconds after the one before."""
    bucket, at, stored = full(RATE, 0.0), 0.0, 0.0
    for gap in gaps:
        at += gap
        bucket = filled(bucket, RATE, at)
        if has_room(bucket):
            bucket = taken(bucket, cost)
            stored += cost
    return stored


@given(st.lists(st.floats(0, 5), max_size=200), st.floats(1, 500))
def test_a_sender_stores_no_more_than_its_rate_and_one_burst(
    gaps: list[float], cost: float
) -> None:
    assert written(gaps, cost) <= BURST + RATE * sum(gaps) + cost + 1e-6


@given(st.lists(st.floats(0.5, 5), max_size=200))
def test_a_sender_under_its_rate_loses_nothing(gaps: list[float]) -> None:
    assert written(gaps, RATE / 2) == len(gaps) * RATE / 2


def test_an_earlier_time_changes_nothing() -> None:
    """Two brokers' clocks may differ by a little."""
    bucket = Bucket(5.0, at=10.0)
    assert filled(bucket, RATE, 9.0) == bucket


@pytest.mark.parametrize(
    ("at", "level"), [(10.0, 50.0), (10.5, 100.0), (19.25, 975.0), (19.5, BURST), (99.0, BURST)]
)
def test_a_bucket_fills_at_its_rate_up_to_its_burst(at: float, level: float) -> None:
    assert filled(Bucket(50.0, at=10.0), RATE, at) == Bucket(level, at)
    assert is_full(Bucket(50.0, at=10.0), RATE, at) == (level == BURST)


def test_what_is_taken_may_be_more_than_there_is_and_then_there_is_no_room() -> None:
    for level, has in ((0.5, True), (0.0, False), (-0.5, False)):
        bucket = taken(Bucket(1.0, at=10.0), 1.0 - level)
        assert (bucket, has_room(bucket)) == (Bucket(level, 10.0), has)


@pytest.mark.parametrize(("at", "slot"), [(0.0, 0), (9.9, 0), (10.0, 1), (29.9, 2)])
def test_ten_seconds_have_one_burst_that_nothing_fills_before_they_end(
    at: float, slot: int
) -> None:
    assert slot_of(at) == slot
    bucket = of_slot(RATE, at)
    assert bucket == Bucket(BURST, 10.0 * slot + 10.0)
    assert filled(taken(bucket, 7.0), RATE, 10.0 * slot + 9.9).level == BURST - 7.0
    assert full(RATE, at) == Bucket(BURST, at)
