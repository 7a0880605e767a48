"""An estimate from what earlier jobs took: the median, and the range of eight in ten of them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taken:
    """Slots x microseconds of `num_jobs` jobs; of few jobs, `low` and `high` are the extremes."""

    num_jobs: int
    low: int
    median: int
    high: int


def taken(slot_microseconds: Sequence[int]) -> Taken | None:
    """The 10th, 50th and 90th percentile, each the value of a job; None without a job."""
    if not slot_microseconds:
        return None
    ordered = sorted(slot_microseconds)
    last = len(ordered) - 1
    low, median, high = (ordered[round(last * share / 10)] for share in (1, 5, 9))
    return Taken(len(ordered), low, median, high)
