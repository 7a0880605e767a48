"""Windows: each batch once, each heartbeat as often as it comes, by the time it was received."""

import math
import random
from statistics import fmean, pstdev

from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.windows import (
    KEPT_WINDOWS,
    MAX_GAPS,
    WINDOW_SECONDS,
    Progress,
    Source,
    Window,
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
        for name in ("train/loss", "grad_norm", "accuracy", "system/device_0_utilisation_percent")
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
