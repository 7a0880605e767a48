"""Levels of buckets: which there are, how samples are added, whose steps count."""

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core import levels
from services.metrics.core.buckets import Bucket, cut
from services.metrics.core.levels import BUCKETS_PER_TILE, NUM_LEVELS, add, level_for, width_of
from services.metrics.core.series import Series


def line(*steps: int) -> Series:
    return Series(steps, tuple(float(step % 11) for step in steps))


def test_a_short_series_has_no_levels_and_one_chunk() -> None:
    step = add(line(10, 11), 2, line(7, 8), None)
    assert (step.merged, step.base_width, step.tiles) == (line(7, 8, 10, 11), None, {})


def test_a_step_logged_again_has_the_new_value() -> None:
    step = add(Series((2, 3), (0.2, 0.3)), 1, Series((1, 2), (9.0, 9.0)), None)
    assert step.merged == Series((1, 2, 3), (9.0, 0.2, 0.3))


@pytest.mark.parametrize(("gap", "base_width"), [(1, 16), (2, 32), (100, 16 * 128)])
def test_level_0_has_about_16_samples_to_a_bucket(gap: int, base_width: int) -> None:
    steps = range(0, gap * levels.MIN_SAMPLES, gap)
    step = add(line(*steps[1000:]), 1, line(*steps[:1000]), None)
    assert step.base_width == base_width
    summed = [bucket for (level, _), tile in step.tiles.items() if level == 0 for bucket in tile]
    assert sum(bucket.num_finite for bucket in summed) == levels.MIN_SAMPLES, "with the old ones"


def test_only_small_chunks_are_merged() -> None:
    large = line(*range(5000, 5000 + 2 * levels.MIN_CHUNK_SAMPLES))
    assert add(large, 2, line(1), 16).merged is None
    assert add(large, 3, line(1), 16).merged is not None


def test_many_samples_are_added_at_once_but_chunks_stay_small() -> None:
    large, small = [2000] * 100, [levels.MIN_CHUNK_SAMPLES - 1] * 100
    num_large = levels.num_to_add(large, may_merge=False)
    assert 0 <= num_large * 2000 - levels.MAX_SAMPLES_OF_STEP < 2000
    assert levels.num_to_add(large, may_merge=True) == 3
    num_small = levels.num_to_add(small, may_merge=False)
    assert 0 <= num_small * small[0] - levels.MAX_NEW_SAMPLES < small[0]
    assert levels.num_to_add([2000, 2000, 2000, 1, 2000], may_merge=False) == 3
    assert levels.num_to_add([100_000, 1], may_merge=True) == 1
    assert levels.num_to_add([1], may_merge=False) == 1


@given(
    parts=st.lists(
        st.dictionaries(st.integers(0, 40_000), st.floats(width=32), min_size=1, max_size=50),
        min_size=1,
        max_size=4,
    )
)
def test_tiles_hold_what_was_added_whatever_the_order(parts: list[dict[int, float]]) -> None:
    """Each part logs steps of its own."""
    tiles: dict[levels.TileKey, list[Bucket]] = {}
    all_samples: dict[int, float] = {}
    for part in parts:
        samples = {step: part[step] for step in sorted(part) if step not in all_samples}
        all_samples |= samples
        if samples:
            series = Series(tuple(samples), tuple(samples.values()))
            for (level, tile), buckets in add(series, 1, None, 16).tiles.items():
                old = tiles.get((level, tile), [])
                width = width_of(16, level)
                tiles[(level, tile)] = levels.merge_tiles(old, buckets, width)
    ordered = sorted(all_samples)
    for level in range(NUM_LEVELS):
        width = width_of(16, level)
        found = [one for key in sorted(tiles) if key[0] == level for one in tiles[key]]
        direct = cut(ordered, [all_samples[step] for step in ordered], width)
        assert [one[:3] for one in found] == [one[:3] for one in direct]
        for one, other in zip(found, direct, strict=True):
            assert not one.num_finite or (one.low, one.high) == (other.low, other.high)
            assert one.not_finite_step == other.not_finite_step
            assert isfinite(one.mean) == isfinite(other.mean)
    assert max(map(len, tiles.values())) <= BUCKETS_PER_TILE


def test_the_level_is_the_widest_that_fits() -> None:
    assert [level_for(16, width) for width in (8, 16, 32, 64, 512)] == [None, 0, 0, 1, 2]
    assert level_for(16, 2**40) == NUM_LEVELS - 1


def test_where_attempts_overlap_the_higher_one_counts() -> None:
    first = cut(range(0, 64), [1.0] * 64, 16)
    second = cut(range(32, 64), [2.0] * 32, 16)
    buckets, mixed = levels.resolve({1: first, 2: second}, 16)
    assert [buckets[number].mean for number in sorted(buckets)] == [1.0, 1.0, 2.0, 2.0]
    assert mixed == set()


def test_a_bucket_in_which_attempts_meet_is_mixed() -> None:
    first, second = cut(range(0, 40), [1.0] * 40, 16), cut(range(24, 40), [2.0] * 16, 16)
    buckets, mixed = levels.resolve({1: first, 2: second}, 16)
    assert mixed == {1}
    assert (buckets[1].low, buckets[1].high) == (1.0, 2.0)
    assert buckets[2].low == 2.0


@pytest.mark.parametrize(
    ("num_chunks", "num_samples", "is_old", "is_due"),
    [
        (levels.MAX_NEW_CHUNKS - 1, levels.MAX_NEW_SAMPLES - 1, False, False),
        (levels.MAX_NEW_CHUNKS, 1, False, True),
        (1, levels.MAX_NEW_SAMPLES, False, True),
        (1, 1, True, True),
    ],
)
def test_chunks_are_added_when_they_are_many_or_large_or_old(
    num_chunks: int, num_samples: int, is_old: bool, is_due: bool
) -> None:
    assert levels.is_due(num_chunks, num_samples, is_old=is_old) == is_due


def test_chunks_are_added_up_to_the_limit_of_what_may_become_one() -> None:
    large, small = levels.MIN_CHUNK_SAMPLES, levels.MIN_CHUNK_SAMPLES - 1
    new, step = levels.MAX_NEW_SAMPLES, levels.MAX_SAMPLES_OF_STEP
    for sizes, may_merge, num in (
        ([], False, 0),
        ([new, large], False, 2),
        ([new - 1, large, large], True, 2),
        ([new, large], True, 1),
        ([new, small], False, 1),
        ([new - 1, small, large], False, 2),
        ([step, large], False, 1),
        ([step - 1, large, large], False, 2),
        ([small, new, large], False, 2),
    ):
        assert levels.num_to_add(sizes, may_merge=may_merge) == num


def test_levels_begin_with_enough_samples_unless_some_are_elsewhere() -> None:
    enough = line(*range(levels.MIN_SAMPLES))
    assert add(enough, 1, None, None).base_width == 16
    assert add(enough, 1, None, None, may_begin=False) == levels.Step(enough, None, {})
    fewer = line(*range(levels.MIN_SAMPLES - 1))
    assert add(fewer, 1, None, None) == levels.Step(fewer, None, {})
    assert sorted({level for level, _ in add(enough, 1, None, None).tiles}) == [*range(NUM_LEVELS)]


@pytest.mark.parametrize(("gap", "base_width"), [(3, 64), (4, 64), (5, 128)])
def test_the_base_width_is_rounded_up_to_a_power_of_two(gap: int, base_width: int) -> None:
    steps = range(0, gap * levels.MIN_SAMPLES, gap)
    assert add(line(*steps), 1, None, None).base_width == base_width


def test_each_level_is_four_times_as_wide_and_a_tile_has_64_buckets() -> None:
    assert [width_of(16, level) for level in range(3)] == [16, 64, 256]
    last = 16 * BUCKETS_PER_TILE
    assert [levels.tile_of(step, 16) for step in (0, last - 1, last)] == [0, 0, 1]
    tiles = add(line(0, 15, 16, last), 1, None, 16).tiles
    assert {key: len(buckets) for key, buckets in tiles.items() if key[0] < 2} == {
        (0, 0): 2,
        (0, 1): 1,
        (1, 0): 2,
    }


def test_chunks_that_touch_are_joined_and_of_a_common_step_the_new_value_stays() -> None:
    for steps, merged in (((3, 4), (1, 2, 3, 4)), ((2, 3), (1, 2, 3)), ((0,), (0, 1, 2))):
        new = Series(steps, tuple(-float(step) for step in steps))
        found = add(new, 1, Series((1, 2), (1.0, 2.0)), None).merged
        assert found is not None
        assert found.steps == merged
        values = dict(zip(found.steps, found.values, strict=True))
        assert all(values[step] == -step for step in steps)


def bucket(first: int, last: int, mean: float) -> Bucket:
    return Bucket(first, last, 1, mean, mean, mean, None)


@pytest.mark.parametrize(
    ("low", "is_mixed"),
    [((4, 8), False), ((5, 7), False), ((3, 8), True), ((4, 9), True), ((0, 15), True)],
)
def test_a_lower_attempt_counts_where_it_reaches_beyond_the_higher_one(
    low: tuple[int, int], is_mixed: bool
) -> None:
    found, mixed = levels.resolve({1: [bucket(*low, 1.0)], 2: [bucket(4, 8, 3.0)]}, 16)
    assert mixed == ({0} if is_mixed else set())
    assert found[0].mean == (2.0 if is_mixed else 3.0)


def test_of_three_attempts_each_may_reach_beyond_those_above_it() -> None:
    of_attempts = {1: [bucket(0, 9, 1.0)], 2: [bucket(0, 5, 2.0)], 3: [bucket(4, 8, 3.0)]}
    found, _ = levels.resolve(of_attempts, 16)
    assert found[0].num_finite == 3
    assert (
        levels.resolve({1: [bucket(1, 7, 1.0)], **{k: of_attempts[k] for k in (2, 3)}}, 16)[0][
            0
        ].num_finite
        == 2
    )


def test_the_base_width_is_that_of_the_mean_gap_between_samples() -> None:
    for last, base_width in ((6138, 32), (3 * (levels.MIN_SAMPLES - 1), 64)):
        assert (
            add(line(*range(levels.MIN_SAMPLES - 1), last), 1, None, None).base_width == base_width
        )
