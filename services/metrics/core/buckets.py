"""Samples of one series summed up in buckets of steps.

A bucket of width `w` covers the steps from a multiple of `w` to before the next one. It keeps how
many finite samples it holds, their lowest, highest and mean value, and its first non-finite sample,
so that a chart of few points hides neither a peak nor a NaN. Buckets of one width add up to those
of a wider one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isfinite, nan
from typing import NamedTuple


class Bucket(NamedTuple):
    """`num_finite` samples between two steps, both included; without any, the values are NaN."""

    first_step: int
    last_step: int
    num_finite: int
    low: float
    high: float
    mean: float
    not_finite_step: int | None


def cut(steps: Sequence[int], values: Sequence[float], width: int) -> list[Bucket]:
    """The buckets of samples whose steps are ascending and distinct."""
    buckets = []
    start, end = 0, len(steps)
    while start < end:
        next_step = (steps[start] // width + 1) * width
        stop = bisect_left(steps, next_step, start, min(end, start + width))
        buckets.append(_bucket(steps[start:stop], values[start:stop]))
        start = stop
    return buckets


def widen(buckets: Iterable[Bucket], width: int) -> list[Bucket]:
    """Add up buckets, in the order of their steps, to buckets of this width."""
    return [
        _sum(list(group)) for _, group in groupby(buckets, key=lambda one: one.first_step // width)
    ]


def _bucket(steps: Sequence[int], values: Sequence[float]) -> Bucket:
    total = sum(values)
    if isfinite(total):
        mean = total / len(values)
        return Bucket(steps[0], steps[-1], len(values), min(values), max(values), mean, None)
    finite = [value for value in values if isfinite(value)]
    not_finite = (step for step, value in zip(steps, values, strict=True) if not isfinite(value))
    return Bucket(
        steps[0],
        steps[-1],
        len(finite),
        min(finite, default=nan),
        max(finite, default=nan),
        # Each divided first: the sum of finite values may exceed the largest number.
        sum(value / len(finite) for value in finite) if finite else nan,
        next(not_finite, None),
    )


def _sum(buckets: Sequence[Bucket]) -> Bucket:
    if len(buckets) == 1:
        return buckets[0]
    finite = [one for one in buckets if one.num_finite]
    num_finite = sum(one.num_finite for one in finite)
    not_finite = [one.not_finite_step for one in buckets if one.not_finite_step is not None]
    return Bucket(
        min(one.first_step for one in buckets),
        max(one.last_step for one in buckets),
        num_finite,
        min((one.low for one in finite), default=nan),
        max((one.high for one in finite), default=nan),
        sum(one.mean * (one.num_finite / num_finite) for one in finite) if finite else nan,
        min(not_finite, default=None),
    )
