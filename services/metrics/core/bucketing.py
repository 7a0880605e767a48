"""Curves in buckets of steps or of time, made of samples and of what levels hold of them.

A row sums up `num` finite samples between two steps, both included; a sample is a row of its own.
Everything is done on arrays: a curve may be made of tens of thousands of rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.metrics.core.layout import Samples

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NONE = -1  # no step is negative


class Rows(NamedTuple):
    """Arrays of one length. Without finite samples, the values are NaN."""

    first: Ints
    last: Ints
    num: Ints
    low: Floats
    high: Floats
    mean: Floats
    # The first step whose value is NaN or infinite, or NONE.
    not_finite: Ints


class Clock(NamedTuple):
    """When an attempt was at which step, both ascending: spread evenly between the points."""

    steps: Floats
    times: Floats

    def times_of(self, steps: Ints) -> Floats:
        return np.interp(steps, self.steps, self.times)

    def with_point(self, step: float, time: float) -> "Clock":
        """With one more point; of two at one step, the later time."""
        place = int(np.searchsorted(self.steps, step))
        if place == len(self.steps) or self.steps[place] != step:
            steps, times = np.insert(self.steps, place, step), np.insert(self.times, place, time)
            return Clock(steps, times)
        times = self.times.copy()
        times[place] = max(times[place], time)
        return Clock(self.steps, times)

    def step_at(self, time: float) -> int:
        return int(np.interp(time, self.times, self.steps))


class Curve(NamedTuple):
    """Buckets that hold samples, ascending by `x`, where each begins.

    `is_exact`: each holds one sample, and `x` is where it is.
    """

    x: Floats | Ints
    num: Ints
    low: Floats
    high: Floats
    mean: Floats
    # Where buckets hold values that are not finite.
    not_finite: Floats | Ints
    is_exact: bool


def of_samples(samples: Samples) -> Rows:
    steps, values = samples
    is_finite = np.isfinite(values)
    finite = np.where(is_finite, values, np.nan)
    not_finite = np.where(is_finite, NONE, steps)
    return Rows(steps, steps, is_finite.astype(np.int64), finite, finite, finite, not_finite)


def joined(parts: Sequence[Rows]) -> Rows:
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def between(rows: Rows, from_step: int, to_step: int) -> Rows:
    """The rows that begin within these steps, both included."""
    return _where(rows, (rows.first >= from_step) & (rows.first <= to_step))


def without(rows: Rows, spans: Sequence[tuple[int, int]], finer: Rows | None = None) -> Rows:
    """What begins outside of the spans of steps, both ends included, which are another attempt's.

    Rows across the end of a span are replaced by those of `finer` within them.
    """
    outside, across = _apart(rows, spans)
    kept = _where(rows, outside & ~across)
    if finer is None:
        return _where(rows, outside)
    starts, ends = rows.first[across], rows.last[across]
    if not len(starts):
        return kept
    place = np.searchsorted(starts, finer.first, side="right") - 1
    is_within = (place >= 0) & (finer.first <= ends[np.maximum(place, 0)])
    return joined([kept, _where(finer, is_within & _apart(finer, spans)[0])])


def with_span(
    spans: Sequence[tuple[int, int]], first: int, last: int
) -> tuple[tuple[int, int], ...]:
    """The steps of these spans and from `first` to `last`, in as few spans as can be.

    Attempts continue each other: hundreds of them are still one span.
    """
    apart = []
    for span in spans:
        if span[1] < first - 1 or span[0] > last + 1:
            apart.append(span)
        else:
            first, last = min(first, span[0]), max(last, span[1])
    return (*apart, (first, last))


def bucketed(rows: Rows, x: Floats | Ints, start: float, width: float, num_buckets: int) -> Curve:
    """One bucket for each `width` from `start` on that holds samples; `x`: where each row is."""
    if len(rows.num) <= num_buckets and np.all(rows.first == rows.last):
        order = np.argsort(x, kind="stable")
        rows, x = _where(rows, order), x[order]
        not_finite = x[rows.not_finite != NONE]
        return Curve(x, rows.num, rows.low, rows.high, rows.mean, not_finite, is_exact=True)
    number = np.floor((x - start) / width).astype(np.int64)
    number = np.clip(number, 0, num_buckets - 1)
    order = np.argsort(number, kind="stable")
    rows, number = _where(rows, order), number[order]
    begins = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    num = np.add.reduceat(rows.num, begins)
    # Divided before they are added: the sum of finite values may exceed the largest number.
    share = rows.num / np.maximum(np.repeat(num, np.diff(np.append(begins, len(number)))), 1)
    mean = np.add.reduceat(np.where(rows.num > 0, rows.mean, 0.0) * share, begins)
    has_none = np.minimum.reduceat(np.where(rows.not_finite == NONE, 1, 0), begins) == 1
    at: Floats = start + number[begins] * np.float64(width)
    return Curve(
        at,
        num,
        np.fmin.reduceat(rows.low, begins),
        np.fmax.reduceat(rows.high, begins),
        np.where(num > 0, mean, np.nan),
        at[~has_none],
        is_exact=False,
    )


def _apart(
    rows: Rows, spans: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows begin outside of the spans, and which reach across an end of one."""
    outside = np.ones(len(rows.first), dtype=bool)
    across = np.zeros(len(rows.first), dtype=bool)
    for first, last in spans:
        outside &= (rows.first < first) | (rows.first > last)
        across |= (rows.first < first) & (rows.last >= first)
        across |= (rows.first <= last) & (rows.last > last)
    return outside, across


def _where(rows: Rows, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
    return Rows._make(column[chosen] for column in rows)
