"""The steps of later attempts: none is lost, and hundreds of attempts are few spans, and read at
once."""

from functools import reduce
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.bucketing import (
    Piece,
    Rows,
    SummedPiece,
    of_pieces,
    of_samples,
    of_summed,
    with_span,
)
from services.metrics.core.layout import Samples

Span = tuple[int, int]
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)).map(lambda of: (of[0], sum(of))))


def joined(spans: list[Span]) -> tuple[Span, ...]:
    return reduce(lambda so_far, span: with_span(so_far, *span), spans, ())


def steps(spans: tuple[Span, ...] | list[Span]) -> list[int]:
    return [step for first, last in spans for step in range(first, last + 1)]


@given(SPANS)
def test_every_step_is_in_one_span_and_no_two_spans_touch(spans: list[Span]) -> None:
    found = sorted(joined(spans))
    assert steps(found) == sorted(set(steps(spans)))
    assert all(low[1] + 1 < high[0] for low, high in pairwise(found))


def test_a_run_that_restarted_often_has_one_span() -> None:
    assert joined([(100 * attempt, 100 * attempt + 199) for attempt in range(500, 0, -1)]) == (
        (100, 50_199),
    )


CHUNKS = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), min_size=1, max_size=3)
PIECES = st.lists(
    st.builds(Piece, CHUNKS, st.integers(0, 20), st.integers(20, 60), SPANS), min_size=1, max_size=4
)


@given(PIECES)
def test_of_each_piece_the_last_value_of_a_step_counts_outside_of_its_spans(
    pieces: list[Piece],
) -> None:
    values = iter(range(1000))
    given: list[Piece] = []
    expected = []
    for number, piece in enumerate(pieces):
        chunks = [(steps, [float(next(values)) for _ in steps]) for steps in piece.chunks]
        given.append(piece._replace(chunks=[Samples(*map(np.array, one)) for one in chunks]))
        last = dict(pair for one in chunks for pair in zip(*one, strict=True))
        expected += [
            (number, step, last[step])
            for step in sorted(last)
            if piece.from_step <= step <= piece.to_step
            and not any(first <= step <= end for first, end in piece.spans)
        ]
    rows, numbers = of_pieces(given)
    found = zip(numbers.tolist(), rows.first.tolist(), rows.mean.tolist(), strict=True)
    assert list(found) == expected


def rows_of(steps: list[int], width: int) -> Rows:
    """One row for each `width` steps that has some of these."""
    fine = of_samples(Samples(np.array(steps), np.array(steps, dtype=float)))
    firsts = sorted({step // width * width for step in steps})
    chosen = Rows._make(column[: len(firsts)] for column in fine)
    return chosen._replace(first=np.array(firsts), last=np.array(firsts) + width - 1)


STEPS = st.sets(st.integers(0, 60), min_size=1, max_size=20).map(sorted)
SUMMED = st.lists(
    st.tuples(STEPS, st.booleans(), st.integers(0, 20), st.integers(20, 60), SPANS),
    min_size=1,
    max_size=4,
)


@given(SUMMED)
def test_rows_across_the_end_of_a_span_are_replaced_by_finer_ones(
    given: list[tuple[list[int], bool, int, int, list[Span]]],
) -> None:
    pieces = []
    expected = []
    for number, (steps, has_finer, low, high, spans) in enumerate(given):
        finer = rows_of(steps, 1) if has_finer else None
        pieces.append(SummedPiece(rows_of(steps, 4), finer, low, high, spans))

        def is_outside(step: int, spans: list[Span] = spans) -> bool:
            return not any(first <= step <= last for first, last in spans)

        for first in sorted({step // 4 * 4 for step in steps}):
            last = first + 3
            is_across = has_finer and any(
                first < begin <= last or first <= end < last for begin, end in spans
            )
            firsts = [step for step in steps if first <= step <= last] if is_across else [first]
            expected += [
                (number, step) for step in firsts if is_outside(step) and low <= step <= high
            ]
    rows, numbers = of_summed(pieces)
    found = zip(numbers.tolist(), rows.first.tolist(), strict=True)
    assert sorted(found) == sorted(expected)
    assert numbers.tolist() == sorted(numbers.tolist())
