"""Fewer points for a chart, with every peak kept.

The steps are cut into buckets of equal width; of each bucket the lowest, the highest and the first
non-finite sample stay, besides the very first and last sample. The result is a subset of the
samples, in order, at most `max_points` of them. Widths are powers of two and buckets begin at
multiples of their width, so a growing series keeps its old points and a live chart does not
flicker.
"""

from itertools import groupby
from math import isfinite

from services.metrics.core.series import Series

# First, last, and three of one bucket.
MIN_POINTS = 5
_POINTS_PER_BUCKET = 3


def downsample(series: Series, max_points: int) -> Series:
    """At most `max_points` of the samples; all of them where they are no more."""
    assert max_points >= MIN_POINTS, f"at least {MIN_POINTS} points"
    num_samples = len(series.steps)
    if num_samples <= max_points:
        return series
    width = _bucket_width(series.steps[0], series.steps[-1], (max_points - 2) // _POINTS_PER_BUCKET)
    kept = {0, num_samples - 1}
    for _, bucket in groupby(range(num_samples), key=lambda index: series.steps[index] // width):
        kept |= _notable(series.values, list(bucket))
    indices = sorted(kept)
    return Series(
        tuple(series.steps[index] for index in indices),
        tuple(series.values[index] for index in indices),
    )


def _bucket_width(first_step: int, last_step: int, max_buckets: int) -> int:
    """The smallest power of two that cuts the steps into at most `max_buckets` buckets."""
    width = 1
    while last_step // width - first_step // width + 1 > max_buckets:
        width *= 2
    return width


def _notable(values: tuple[float, ...], bucket: list[int]) -> set[int]:
    finite = [index for index in bucket if isfinite(values[index])]
    notable = set()
    if finite:
        notable.add(min(finite, key=values.__getitem__))
        notable.add(max(finite, key=values.__getitem__))
    if len(finite) < len(bucket):
        notable.add(next(index for index in bucket if not isfinite(values[index])))
    return notable
