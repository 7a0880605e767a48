"""The steps of later attempts: none is lost, and hundreds of attempts are few spans."""

from functools import reduce
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.bucketing import with_span

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
