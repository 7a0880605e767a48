"""What a chart shows of many series: points of one width for all, or each sample where few.

Widths are powers of two, and points begin at multiples of their width, so that the points of a live
chart stay where they are while it grows. All series of an answer share one width; a series with few
samples is exact.
"""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import isfinite

from services.metrics.core.buckets import Bucket, cut, widen
from services.metrics.core.series import Series

# Of all series of an answer together; with `MAX_BYTES` the bound of an answer.
MAX_POINTS = 10_000
MIN_POINTS = 8
MAX_BYTES = 300_000


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one series, ascending. Exact samples have neither `lows` nor `highs`."""

    steps: tuple[int, ...]
    values: Sequence[float | None]
    lows: Sequence[float | None] | None = None
    highs: Sequence[float | None] | None = None
    not_finite: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a poll continues: the last chunk that was read, and how the chart was drawn.

    `view` identifies what was asked for and which attempts there were.
    """

    chunk: int
    width: int
    max_points: int
    view: int

    def __str__(self) -> str:
        return ".".join(map(str, astuple(self)))


def read_position(text: str) -> Position | None:
    """None where it is not a position: then the answer is whole."""
    found = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})", text)
    return Position(*map(int, found.groups())) if found else None


def points_per_series(max_points: int, num_series: int) -> int:
    return max(MIN_POINTS, min(max_points, MAX_POINTS // max(1, num_series)))


def width_for(first_step: int, last_step: int, max_points: int) -> int:
    """The smallest power of two that cuts these steps into at most `max_points` buckets."""
    width = 1
    while last_step // width - first_step // width + 1 > max_points:
        width *= 2
    return width


def draw(found: Series | Sequence[Bucket], width: int, *, is_exact: bool) -> Curve:
    """The points of samples, or of buckets of at most this width."""
    if isinstance(found, Series):
        if is_exact:
            return _exact(found)
        return _summed_up(cut(found.steps, found.values, width), width)
    return _summed_up(widen(found, width), width)


def _exact(series: Series) -> Curve:
    return Curve(
        series.steps,
        [value if isfinite(value) else None for value in series.values],
        not_finite=tuple(
            step
            for step, value in zip(series.steps, series.values, strict=True)
            if not isfinite(value)
        ),
    )


def _summed_up(buckets: Sequence[Bucket], width: int) -> Curve:
    """One point per bucket of this width, at the first step that it covers."""
    return Curve(
        tuple(one.first_step // width * width for one in buckets),
        [one.mean if one.num_finite else None for one in buckets],
        [one.low if one.num_finite else None for one in buckets],
        [one.high if one.num_finite else None for one in buckets],
        tuple(one.not_finite_step for one in buckets if one.not_finite_step is not None),
    )
