"""One series of a job: many chunks of several runs become every step once.

Chunks go in by attempt and, within one, in the order they arrived; a step's value is that of the
highest attempt that logged it, because a resumed run repeats the steps after its checkpoint. Within
one attempt the last value counts. Non-finite values are treated like others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class Chunk:
    """Samples of one series of one run, as they were sent: steps in any order, repeats allowed."""

    attempt: int
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Series:
    """Every step once, ascending."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What is kept about a chunk beside its samples."""

    num_samples: int
    min_step: int
    max_step: int
    last_value: float
    first_not_finite_step: int | None


def merge(chunks: Iterable[Chunk], from_step: int = 0, to_step: int | None = None) -> Series:
    """The series within `from_step..to_step`, both included."""
    merged: dict[int, float] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.attempt):
        merged.update(zip(chunk.steps, chunk.values, strict=True))
    ordered = sorted(merged)
    start = bisect_left(ordered, from_step)
    stop = len(ordered) if to_step is None else bisect_right(ordered, to_step)
    steps = tuple(ordered[start:stop])
    return Series(steps, tuple(map(merged.__getitem__, steps)))


def summarize(steps: Sequence[int], values: Sequence[float]) -> Summary:
    """Facts of a chunk that has at least one sample; its last value is that of its last step."""
    last_step = max(steps)
    last_value = next(
        value
        for step, value in zip(reversed(steps), reversed(values), strict=True)
        if step == last_step
    )
    first_not_finite_step = None
    if not isfinite(sum(values)):  # much faster than to look at each
        found = (step for step, value in zip(steps, values, strict=True) if not isfinite(value))
        first_not_finite_step = next(found, None)
    return Summary(
        num_samples=len(steps),
        min_step=min(steps),
        max_step=last_step,
        last_value=last_value,
        first_not_finite_step=first_not_finite_step,
    )
