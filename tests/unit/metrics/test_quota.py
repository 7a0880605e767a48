"""A sender's quota: what is over the rate has no room, and what is under it always has."""

from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.quota import BURST_SECONDS, Bucket, filled, full, has_room, taken

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
