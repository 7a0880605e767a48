"""Buckets of steps: what they keep, and that they add up."""

from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.buckets import Bucket, cut, widen

VALUES = st.one_of(st.floats(width=64), st.integers(-9, 9).map(float))
SAMPLES = st.dictionaries(st.integers(0, 2000), VALUES, min_size=1, max_size=80)


@given(SAMPLES, st.sampled_from([1, 16, 64]))
def test_a_bucket_keeps_the_lowest_the_highest_and_the_mean(
    samples: dict[int, float], width: int
) -> None:
    steps = sorted(samples)
    for bucket in cut(steps, [samples[step] for step in steps], width):
        of = [step for step in steps if step // width == bucket.first_step // width]
        finite = [samples[step] for step in of if isfinite(samples[step])]
        assert (bucket.first_step, bucket.last_step) == (of[0], of[-1])
        assert bucket.num_finite == len(finite)
        not_finite = [step for step in of if not isfinite(samples[step])]
        assert bucket.not_finite_step == (not_finite[0] if not_finite else None)
        if finite:
            assert (bucket.low, bucket.high) == (min(finite), max(finite))
            assert isfinite(bucket.mean)
            slack = 1e-9 * max(map(abs, finite))
            assert min(finite) - slack <= bucket.mean <= max(finite) + slack


@given(SAMPLES, st.sampled_from([16, 64]), st.sampled_from([2, 8]))
def test_buckets_add_up_to_those_of_the_samples(
    samples: dict[int, float], width: int, factor: int
) -> None:
    steps = sorted(samples)
    values = [samples[step] for step in steps]
    wide = widen(cut(steps, values, width), width * factor)
    direct = cut(steps, values, width * factor)
    assert [one[:3] for one in wide] == [one[:3] for one in direct]
    assert [one.not_finite_step for one in wide] == [one.not_finite_step for one in direct]
    for one, other in zip(wide, direct, strict=True):
        assert not one.num_finite or (one.low, one.high) == (other.low, other.high)


def test_the_mean_of_numbers_near_the_largest_is_a_number() -> None:
    (bucket,) = cut([0, 1, 2], [1.7e308, 1.7e308, nan], 4)
    assert bucket == Bucket(0, 2, 2, 1.7e308, 1.7e308, bucket.mean, 2)
    assert isfinite(bucket.mean)


def test_a_bucket_without_finite_samples_has_no_value() -> None:
    (bucket,) = widen(cut([0, 5], [inf, nan], 4), 8)
    assert (bucket.num_finite, bucket.not_finite_step) == (0, 0)
    assert not isfinite(bucket.mean)


@pytest.mark.parametrize(
    ("steps", "width", "groups"),
    [
        ((), 4, []),
        ((3, 4), 4, [(3, 3), (4, 4)]),
        ((4, 5, 6, 7, 8), 4, [(4, 7), (8, 8)]),
        ((0, 100), 4, [(0, 0), (100, 100)]),
        ((1, 2), 1, [(1, 1), (2, 2)]),
    ],
)
def test_buckets_begin_at_multiples_of_their_width(
    steps: tuple[int, ...], width: int, groups: list[tuple[int, int]]
) -> None:
    values = [float(step) for step in steps]
    assert [one[:2] for one in cut(steps, values, width)] == groups


def test_the_mean_of_several_buckets_is_that_of_their_samples() -> None:
    one = Bucket(0, 2, 3, 1.0, 4.0, 2.0, None)
    other = Bucket(3, 3, 1, 6.0, 6.0, 6.0, 3)
    empty = Bucket(4, 5, 0, nan, nan, nan, 4)
    assert widen([one, other, empty], 8) == [Bucket(0, 5, 4, 1.0, 6.0, 3.0, 3)]
    assert widen([empty, one._replace(first_step=6, last_step=7)], 8) == [
        Bucket(4, 7, 3, 1.0, 4.0, 2.0, 4)
    ]
    assert widen([one], 8) == [one]
    assert widen([], 8) == []


def test_a_bucket_has_the_mean_of_its_finite_samples_and_its_first_other_one() -> None:
    assert cut([0, 1, 2, 3], [1.0, 2.0, 3.0, 6.0], 4) == [Bucket(0, 3, 4, 1.0, 6.0, 3.0, None)]
    assert cut([0, 1, 2, 3], [1.0, inf, nan, 3.0], 4) == [Bucket(0, 3, 2, 1.0, 3.0, 2.0, 1)]
