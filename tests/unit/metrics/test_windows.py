"""Windows: each batch once, each heartbeat as often as it comes, by the time it was received."""

import math
import random
from dataclasses import replace
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.windows import (
    KEPT_WINDOWS,
    MAX_GAPS,
    MAX_SERIES,
    MAX_SESSIONS,
    WINDOW_SECONDS,
    Progress,
    Source,
    Statistics,
    Window,
    _bounded,
    _merged,
    _square,
    _statistics,
    _with_number,
    add_batch,
    add_heartbeat,
    is_gradient_norm,
    is_loss,
)

EMPTY = Source()


def loss(*values: float) -> dict[str, tuple[list[int], list[float]]]:
    return {"loss": (list(range(len(values))), list(values))}


def test_a_batch_counts_once_however_often_and_in_whatever_order_it_arrives() -> None:
    batches = [(number, [float(number), 2.0 * number]) for number in range(40)]
    expected = EMPTY
    for number, values in batches:
        expected = add_batch(expected, 10.0, 0, "s", number, loss(*values))
    source = expected
    for number, values in random.Random(1).choices(batches, k=200):
        assert add_batch(source, 10.0, 0, "s", number, loss(*values)) is source
    assert expected.batches == (("s", ((0, 39),)),)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), min_size=1, max_size=9))
def test_statistics_are_those_of_all_values_together(parts: list[list[float]]) -> None:
    source = EMPTY
    for number, values in enumerate(parts):
        source = add_batch(source, 5.0, 0, "s", number, loss(*values))
    together = [value for values in parts for value in values]
    found = source.windows[0].series["loss"]
    assert found.num_finite == len(together)
    assert (found.low, found.high) == (min(together), max(together))
    assert math.isclose(found.mean, fmean(together), rel_tol=1e-9, abs_tol=1e-6)
    assert math.isclose(found.deviation, pstdev(together), rel_tol=1e-6, abs_tol=1e-3)


@given(st.lists(st.floats(), min_size=1, max_size=9))
def test_any_values_give_numbers_that_json_can_hold(values: list[float]) -> None:
    source = add_batch(EMPTY, 5.0, 0, "s", 0, loss(*values))
    source = add_batch(source, 5.0, 0, "s", 1, loss(*reversed(values)))
    found = source.windows[0].series["loss"]
    assert found.num_finite + found.num_not_finite == 2 * len(values)
    assert all(map(math.isfinite, (found.mean, found.squares, found.low, found.high)))


def test_only_losses_and_gradient_norms_of_rank_0_and_devices_are_watched() -> None:
    columns = {
        name: ([0], [1.0])
        for name in (
            *("train/loss", "grad_norm", "accuracy", "my_utilisation_percent"),
            *("system/device_0_utilisation_percent", "system/memory_bytes"),
        )
    }
    first = add_batch(EMPTY, 5.0, 0, "s", 0, columns)
    assert sorted(first.windows[0].series) == [
        "grad_norm",
        "system/device_0_utilisation_percent",
        "train/loss",
    ]
    second = add_batch(EMPTY, 5.0, 1, "s", 0, columns)
    assert sorted(second.windows[0].series) == ["system/device_0_utilisation_percent"]
    assert [is_loss(name) for name in ("loss", "val_loss", "Loss", "glossy", "loss_scale")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert all(map(is_gradient_norm, ("grad_norm", "gradient norm", "train/grad-norm")))


def test_no_step_falls_between_two_windows() -> None:
    source = EMPTY
    for at in range(0, 90, 5):
        source = add_heartbeat(source, float(at), at * 2)
    first, second, third = (window.progress for window in source.windows)
    assert first == Progress(0.0, 0, 25.0, 50)
    assert second == Progress(25.0, 50, 55.0, 110)
    assert third == Progress(55.0, 110, 85.0, 170)
    assert second.steps_per_second == 2.0
    for at in range(0, 90, 5):
        assert add_heartbeat(source, float(at), at * 2) == source


def test_a_heartbeat_of_another_rank_does_not_take_steps_back() -> None:
    source = add_heartbeat(add_heartbeat(EMPTY, 1.0, 10), 2.0, 8)
    assert source.windows == (Window(0, {}, Progress(1.0, 10, 2.0, 10)),)


def test_old_windows_are_left_behind_and_what_is_too_late_adds_nothing() -> None:
    source = EMPTY
    for number in range(10):
        source = add_batch(source, number * WINDOW_SECONDS, 0, "s", number, loss(1.0))
    assert len(source.windows) == KEPT_WINDOWS
    late = add_batch(source, 0.0, 0, "s", 10, loss(9.0))
    assert late.windows == source.windows
    assert add_batch(late, 400.0, 0, "s", 10, loss(9.0)) is late, "it is known nevertheless"


def test_what_is_remembered_of_batches_is_bounded() -> None:
    source = EMPTY
    for number in range(0, 1000, 2):
        source = add_batch(source, 5.0, 0, "s", number, loss(1.0))
    for session in range(100):
        source = add_batch(source, 5.0, 0, f"s{session}", 0, loss(1.0))
    assert max(len(spans) for _, spans in source.batches) <= MAX_GAPS
    assert len(source.batches) == 16


@pytest.mark.parametrize(
    ("spans", "number", "after"),
    [
        ((), 5, ((5, 5),)),
        (((1, 3),), 1, ((1, 3),)),
        (((1, 3),), 3, ((1, 3),)),
        (((1, 3),), 4, ((1, 4),)),
        (((1, 3),), 5, ((1, 3), (5, 5))),
        (((1, 3),), 0, ((0, 3),)),
        (((2, 3),), 0, ((0, 0), (2, 3))),
        (((1, 3), (5, 6)), 4, ((1, 6),)),
    ],
)
def test_numbers_that_follow_each_other_are_one_span(spans, number, after) -> None:
    assert _with_number(spans, number) == after


def test_of_one_gap_too_many_the_earliest_is_closed() -> None:
    spans = tuple((number, number) for number in range(0, 2 * MAX_GAPS, 2))
    assert _with_number(spans[:-1], spans[-1][0]) == spans
    assert _with_number(spans, 2 * MAX_GAPS) == (
        (0, 2), *spans[2:], (2 * MAX_GAPS, 2 * MAX_GAPS)
    )  # fmt: skip


def test_statistics_of_finite_values_and_of_none() -> None:
    assert _statistics([1.0, 3.0, math.nan]) == Statistics(2, 1, 2.0, 2.0, 1.0, 3.0)
    assert _statistics([math.inf]) == Statistics(num_not_finite=1)
    assert Statistics().deviation == 0.0
    assert Statistics(num_finite=2, squares=8.0).deviation == 2.0


def test_merged_statistics_are_those_of_both_and_either_may_have_no_value() -> None:
    one, other = _statistics([1.0, 3.0]), _statistics([8.0, math.nan])
    assert _merged(one, other) == Statistics(3, 1, 4.0, 26.0, 1.0, 8.0)
    empty = Statistics(num_not_finite=2)
    assert _merged(empty, one) == _merged(one, empty) == replace(one, num_not_finite=2)
    assert _merged(empty, empty) == Statistics(num_not_finite=4)


def test_huge_values_stop_at_a_bound() -> None:
    assert [_bounded(value) for value in (-1e308, -2.0, 3.0, 1e308)] == [-1e300, -2.0, 3.0, 1e300]
    assert [_square(value) for value in (-3.0, 9e149, 1e150, -1e200)] == [
        *(9.0, 9e149 * 9e149),
        *(1e300, 1e300),
    ]


def test_only_so_many_series_and_sessions_are_watched() -> None:
    names = [f"loss_{number}/loss" for number in range(MAX_SERIES + 1)]
    source = add_batch(EMPTY, 5.0, 0, "s", 0, {name: ([0], [1.0]) for name in names})
    assert list(source.windows[0].series) == names[:MAX_SERIES]
    source = add_batch(source, 5.0, 0, "s", 1, {name: ([0], [1.0]) for name in names[::-1]})
    assert list(source.windows[0].series) == names[:MAX_SERIES]
    assert source.windows[0].series[names[0]].num_finite == 2
    for session in ("t", "s"):
        source = add_batch(source, 5.0, 0, session, 7, loss(1.0))
    assert [session for session, _ in source.batches] == ["t", "s"], "the newest is last"
    for number in range(MAX_SESSIONS):
        source = add_batch(source, 5.0, 0, f"n{number}", 0, {})
    assert len(source.batches) == MAX_SESSIONS
    assert source.batches[0][0] == "n0"


@pytest.mark.parametrize(
    ("at", "starts"),
    [(0.0, [0]), (29.9, [0]), (30.0, [0, 30]), (-0.1, [-30, 0]), (-89.9, [-90, 0])],
)
def test_what_was_received_is_in_the_window_of_its_time(at: float, starts: list[int]) -> None:
    source = add_batch(add_batch(EMPTY, 5.0, 0, "s", 0, loss(1.0)), at, 0, "s", 1, loss(1.0))
    assert [window.starts_at for window in source.windows] == starts


def test_a_window_that_is_over_for_as_long_as_windows_are_kept_adds_nothing() -> None:
    now = add_batch(EMPTY, 300.0, 0, "s", 0, loss(1.0))
    over = 300.0 - KEPT_WINDOWS * WINDOW_SECONDS
    assert add_batch(now, over, 0, "s", 1, loss(1.0)).windows == now.windows
    assert add_heartbeat(now, over, 1) is now
    late = add_batch(now, over + WINDOW_SECONDS, 0, "s", 1, loss(1.0))
    assert [window.starts_at for window in late.windows] == [210, 300]


def test_a_window_continues_the_one_just_before_it_and_no_other() -> None:
    first = add_heartbeat(EMPTY, 20.0, 4)
    assert add_heartbeat(first, 40.0, 8).windows[-1].progress == Progress(20.0, 4, 40.0, 8)
    assert add_heartbeat(first, 70.0, 8).windows[-1].progress == Progress(70.0, 8, 70.0, 8)
    without = add_batch(EMPTY, 5.0, 0, "s", 0, loss(1.0))
    assert add_heartbeat(without, 40.0, 8).windows[-1].progress == Progress(40.0, 8, 40.0, 8)
    assert add_heartbeat(without, 6.0, 8).windows[-1].progress == Progress(6.0, 8, 6.0, 8)


def test_a_late_heartbeat_changes_nothing_and_a_pace_needs_time() -> None:
    source = add_heartbeat(EMPTY, 5.0, 4)
    for at, step in ((5.0, 9), (4.0, 9)):
        assert add_heartbeat(source, at, step).windows[0].progress == Progress(5.0, 4, 5.0, 4)
    assert Progress(5.0, 4, 5.0, 4).steps_per_second is None
    assert Progress(5.0, 4, 5.5, 8).steps_per_second == 8.0
