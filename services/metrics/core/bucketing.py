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
Spans = Sequence[tuple[int, int]]
NO_SPAN = (NONE, NONE - 1)


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


class Piece(NamedTuple):
    """The samples of one part, in the order they arrived, and which of its steps count: between
    two, both included, and outside of the spans, which are another attempt's."""

    chunks: Sequence[Samples]
    from_step: int
    to_step: int
    spans: Spans


class SummedPiece(NamedTuple):
    """The rows of one part, ascending, that begin between two steps, and in the same way; `finer`:
    rows to replace those across the end of a span."""

    rows: Rows
    finer: Rows | None
    from_step: int
    to_step: int
    spans: Spans


def of_pieces(pieces: Sequence[Piece]) -> tuple[Rows, Ints]:
    """Their samples by piece and step, and the number of the piece of each; of a step that a piece
    has again, the last value. All pieces at once: there may be hundreds, with few samples each.
    """
    steps = np.concatenate([one.steps for piece in pieces for one in piece.chunks])
    values = np.concatenate([one.values for piece in pieces for one in piece.chunks])
    number = _numbers([sum(len(one.steps) for one in piece.chunks) for piece in pieces])
    order = np.lexsort((steps, number))
    steps, values, number = steps[order], values[order], number[order]
    is_last = np.append((steps[1:] != steps[:-1]) | (number[1:] != number[:-1]), True)
    rows = of_samples(Samples(steps, values))
    counts = is_last & _is_between(rows, number, pieces) & _apart(rows, number, pieces)[0]
    return _where(rows, counts), number[counts]


def of_summed(pieces: Sequence[SummedPiece]) -> tuple[Rows, Ints]:
    """Their rows by piece, and the number of the piece of each."""
    rows = joined([piece.rows for piece in pieces])
    number = _numbers([len(piece.rows.first) for piece in pieces])
    outside, across = _apart(rows, number, pieces)
    across &= np.array([piece.finer is not None for piece in pieces])[number]
    is_kept = outside & ~across
    found, numbers = _where(rows, is_kept), number[is_kept]
    if np.any(across):
        fine = joined([piece.finer for piece in pieces if piece.finer is not None])
        fine_number = _numbers(
            [0 if piece.finer is None else len(piece.finer.first) for piece in pieces]
        )
        is_within = _within(_where(rows, across), number[across], fine, fine_number)
        is_kept = is_within & _apart(fine, fine_number, pieces)[0]
        found = joined([found, _where(fine, is_kept)])
        numbers = np.concatenate([numbers, fine_number[is_kept]])
        order = np.argsort(numbers, kind="stable")
        found, numbers = _where(found, order), numbers[order]
    is_between = _is_between(found, numbers, pieces)
    return _where(found, is_between), numbers[is_between]


def joined(parts: Sequence[Rows]) -> Rows:
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


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


def _numbers(sizes: Sequence[int]) -> Ints:
    """The number of the piece of each of its rows."""
    return np.repeat(np.arange(len(sizes)), sizes)


def _is_between(
    rows: Rows, number: Ints, pieces: Sequence[Piece | SummedPiece]
) -> NDArray[np.bool_]:
    limits = np.array([(piece.from_step, piece.to_step) for piece in pieces])[number]
    return (rows.first >= limits[:, 0]) & (rows.first <= limits[:, 1])


def _apart(
    rows: Rows, number: Ints, pieces: Sequence[Piece | SummedPiece]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows begin outside of the spans of their piece, and which reach across an end."""
    outside = np.ones(len(rows.first), dtype=bool)
    across = np.zeros(len(rows.first), dtype=bool)
    for place in range(max(len(piece.spans) for piece in pieces)):
        spans = [piece.spans[place] if place < len(piece.spans) else NO_SPAN for piece in pieces]
        first, last = np.array(spans)[number].T
        outside &= (rows.first < first) | (rows.first > last)
        across |= (rows.first < first) & (rows.last >= first)
        across |= (rows.first <= last) & (rows.last > last)
    return outside, across


def _within(rows: Rows, number: Ints, fine: Rows, fine_number: Ints) -> NDArray[np.bool_]:
    """Which fine rows begin within one of these rows of their piece, which ascend."""
    ranks = np.unique(np.concatenate([rows.first, fine.first]), return_inverse=True)[1]
    size, num = len(ranks), len(rows.first)
    starts, begins = number * size + ranks[:num], fine_number * size + ranks[num:]
    place = np.searchsorted(starts, begins, side="right") - 1
    found = np.maximum(place, 0)
    is_of_same: NDArray[np.bool_] = (place >= 0) & (number[found] == fine_number)
    return is_of_same & (fine.first <= rows.last[found])


def _where(rows: Rows, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Rows:
    return Rows._make(column[chosen] for column in rows)
