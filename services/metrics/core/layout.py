"""How samples are laid out in a file of the object store.

A file is sorted by series; a long series has row groups of its own, so that a part of its steps is
read alone, and short ones share a row group. Within a file, every step of a series occurs once.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS_PER_GROUP = 16_384
# A series with fewer samples shares its row group with its neighbours.
MIN_ROWS_OF_OWN_GROUP = ROWS_PER_GROUP // 4


class Part(NamedTuple):
    """One series of one rank of one run, in the order of the rows."""

    job_id: str
    series: str
    rank: int
    attempt: int
    run_id: str


class Samples(NamedTuple):
    """int64 and float64, of one length."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


class Piece(NamedTuple):
    """Rows of one part that are in one row group; `first_row` is within the group."""

    part: Part
    row_group: int
    first_row: int
    samples: Samples


def merge(chunks: Sequence[Samples]) -> Samples:
    """Every step once, ascending; of a step that occurs again, the last value."""
    steps = np.concatenate([chunk.steps for chunk in chunks])
    values = np.concatenate([chunk.values for chunk in chunks])
    if np.all(steps[1:] > steps[:-1]):
        return Samples(steps, values)
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    is_last = np.append(steps[1:] != steps[:-1], True)
    return Samples(steps[is_last], values[is_last])


def lay_out(parts: Iterable[tuple[Part, Samples]]) -> list[Piece]:
    """The pieces in the order of their rows; every row group has at most `ROWS_PER_GROUP`."""
    pieces: list[Piece] = []
    group, num_rows = 0, 0
    for part, samples in sorted(parts, key=lambda one: one[0]):
        length = len(samples.steps)
        is_long = length >= MIN_ROWS_OF_OWN_GROUP
        if num_rows and (is_long or num_rows + length > ROWS_PER_GROUP):
            group, num_rows = group + 1, 0
        for start in range(0, length, ROWS_PER_GROUP):
            rows = slice(start, start + ROWS_PER_GROUP)
            cut = Samples(samples.steps[rows], samples.values[rows])
            pieces.append(Piece(part, group, num_rows, cut))
            num_rows += len(cut.steps)
            if is_long:
                group, num_rows = group + 1, 0
    return pieces
