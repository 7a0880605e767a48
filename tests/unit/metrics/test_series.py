from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.series import Chunk, Series, Summary, merge, summarize

CHUNKS = st.lists(
    st.builds(
        lambda attempt, samples: Chunk(
            attempt, [step for step, _ in samples], [value for _, value in samples]
        ),
        st.integers(1, 4),
        st.lists(st.tuples(st.integers(0, 30), st.floats(allow_nan=False)), max_size=20),
    ),
    max_size=8,
)


def test_a_resumed_run_replaces_the_steps_it_trained_again() -> None:
    first = Chunk(1, [10, 20, 30, 40], [1.0, 0.9, 0.8, 0.7])
    second = Chunk(2, [30, 40, 50], [0.85, 0.75, 0.6])
    assert merge([second, first]) == Series((10, 20, 30, 40, 50), (1.0, 0.9, 0.85, 0.75, 0.6))


def test_within_one_run_the_last_value_of_a_step_counts() -> None:
    assert merge([Chunk(1, [5, 5], [1.0, 2.0]), Chunk(1, [5], [3.0])]) == Series((5,), (3.0,))


def test_the_range_includes_both_ends() -> None:
    chunk = Chunk(1, [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    assert merge([chunk], from_step=2, to_step=3).steps == (2, 3)


@given(CHUNKS)
def test_every_step_occurs_once_with_a_value_of_its_highest_attempt(chunks: list[Chunk]) -> None:
    merged = merge(chunks)
    attempts: dict[int, int] = {}
    values: dict[tuple[int, int], set[float]] = {}
    for chunk in chunks:
        for step, value in zip(chunk.steps, chunk.values, strict=True):
            attempts[step] = max(attempts.get(step, 0), chunk.attempt)
            values.setdefault((chunk.attempt, step), set()).add(value)
    assert list(merged.steps) == sorted(attempts)
    for step, value in zip(merged.steps, merged.values, strict=True):
        assert value in values[attempts[step], step]


def test_a_summary_names_the_first_value_that_is_not_finite() -> None:
    summary = summarize([7, 8, 9], [0.5, nan, inf])
    assert summary.first_not_finite_step == 8
    assert (summary.num_samples, summary.min_step, summary.max_step) == (3, 7, 9)


def test_the_last_value_is_that_of_the_highest_step() -> None:
    assert summarize([3, 9, 4], [0.3, 0.9, 0.4]).last_value == 0.9
    assert summarize([3, 9, 9], [0.3, 0.9, 0.8]).last_value == 0.8


def test_a_range_may_begin_or_end_anywhere() -> None:
    chunk = Chunk(1, [1, 2, 3], [1.0, 2.0, 3.0])
    for from_step, to_step, steps in (
        (0, None, (1, 2, 3)),
        (2, None, (2, 3)),
        (0, 2, (1, 2)),
        (0, 0, ()),
        (4, None, ()),
    ):
        assert merge([chunk], from_step, to_step).steps == steps


def test_a_summary_of_finite_values_names_no_step() -> None:
    assert summarize([7], [0.5]) == Summary(1, 7, 7, 0.5, None)
    assert summarize([7, 8], [1.7e308, 1.7e308]).first_not_finite_step is None, "their sum is not"
    assert summarize([0], [inf]).first_not_finite_step == 0
