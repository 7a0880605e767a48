"""How samples are laid out in a file: each step once, long series in row groups of their own."""

import numpy as np
import pytest

from services.metrics.core.layout import (
    MIN_ROWS_OF_OWN_GROUP,
    ROWS_PER_GROUP,
    Part,
    Samples,
    lay_out,
    merge,
)


def samples(*pairs: tuple[int, float]) -> Samples:
    steps, values = zip(*pairs, strict=True)
    return Samples(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))


def of_length(length: int) -> Samples:
    return Samples(np.arange(length, dtype=np.int64), np.arange(length, dtype=np.float64))


def part(series: str) -> Part:
    return Part("job_a", series, 0, 1, "run_a")


@pytest.mark.parametrize(
    ("chunks", "merged"),
    [
        ([[(1, 1.0)], [(2, 2.0)]], [(1, 1.0), (2, 2.0)]),
        ([[(2, 2.0)], [(1, 1.0)]], [(1, 1.0), (2, 2.0)]),
        ([[(1, 1.0), (2, 2.0)], [(2, 3.0), (3, 4.0)]], [(1, 1.0), (2, 3.0), (3, 4.0)]),
        ([[(1, 1.0), (1, 2.0)]], [(1, 2.0)]),
        ([[(3, 1.0), (1, 2.0), (3, 3.0)]], [(1, 2.0), (3, 3.0)]),
    ],
)
def test_each_step_is_once_in_order_with_its_last_value(
    chunks: list[list[tuple[int, float]]], merged: list[tuple[int, float]]
) -> None:
    found = merge([samples(*chunk) for chunk in chunks])
    assert list(zip(found.steps.tolist(), found.values.tolist(), strict=True)) == merged


LONG, FULL = MIN_ROWS_OF_OWN_GROUP, ROWS_PER_GROUP


@pytest.mark.parametrize(
    ("lengths", "places"),
    [
        ([], []),
        ([1, 2, 3], [(0, 0, 1), (0, 1, 2), (0, 3, 3)]),
        ([LONG - 1, 1], [(0, 0, LONG - 1), (0, LONG - 1, 1)]),
        ([LONG, 1], [(0, 0, LONG), (1, 0, 1)]),
        ([1, LONG, 1], [(0, 0, 1), (1, 0, LONG), (2, 0, 1)]),
        ([FULL], [(0, 0, FULL)]),
        ([FULL + 1, 1], [(0, 0, FULL), (1, 0, 1), (2, 0, 1)]),
        (
            [LONG - 1] * 4 + [4],
            [*((0, (LONG - 1) * n, LONG - 1) for n in range(4)), (0, FULL - 4, 4)],
        ),
        ([LONG - 1] * 4 + [5], [*((0, (LONG - 1) * n, LONG - 1) for n in range(4)), (1, 0, 5)]),
    ],
)
def test_long_series_have_row_groups_of_their_own_and_short_ones_share(
    lengths: list[int], places: list[tuple[int, int, int]]
) -> None:
    parts = [(part(chr(97 + at)), of_length(length)) for at, length in enumerate(lengths)]
    found = lay_out(reversed(parts))
    assert [(one.row_group, one.first_row, len(one.samples.steps)) for one in found] == places
    for named, given in parts:
        pieces = [one.samples for one in found if one.part == named]
        assert np.concatenate([one.steps for one in pieces]).tolist() == given.steps.tolist()
        assert np.concatenate([one.values for one in pieces]).tolist() == given.values.tolist()
