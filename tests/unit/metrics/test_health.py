"""Alerts from windows: each is raised for its reason, and a healthy run raises none."""

import math
import random
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.metrics.core.health import (
    Change,
    Health,
    RunWindow,
    _slower,
    _with_loss,
    judge,
)
from services.metrics.core.windows import Statistics


def judged(windows: Iterable[RunWindow]) -> Iterator[tuple[int, Change]]:
    """Each change, with the number of its window."""
    health = Health()
    for number, window in enumerate(windows):
        health, changed = judge(health, window)
        yield from ((number, change) for change in changed)


def changes(windows: Iterable[RunWindow]) -> list[tuple[int, str, bool]]:
    """The number of the window, the alert, and whether it was raised or cleared."""
    return [(number, one.finding.alert, one.is_raised) for number, one in judged(windows)]


def of_loss(mean: float, deviation: float = 0.01) -> RunWindow:
    return RunWindow(losses={"loss": Statistics(100, 0, mean, 100 * deviation**2, mean, mean)})


def of_rates(*rates: float) -> RunWindow:
    return RunWindow(rates={f"pod_{number}": rate for number, rate in enumerate(rates)})


def of_work(*seconds: float, rate: float = 10.0) -> RunWindow:
    """Ranks that wait for each other: equal rates, whatever each works."""
    return RunWindow({"a": rate, "b": rate}, work=dict(enumerate(seconds)))


def of_devices(*percents: float) -> RunWindow:
    return RunWindow(utilisation=percents)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (
            chain(repeat(of_loss(1.0), 5), repeat(of_loss(2.0), 5), repeat(of_loss(0.9), 5)),
            [(7, "diverging", True), (12, "diverging", False)],
        ),
        (chain(repeat(of_loss(1.0), 5), repeat(of_loss(1.4), 9)), []),
        (chain(repeat(of_loss(1.0, deviation=0.5), 5), repeat(of_loss(3.0, 0.5), 9)), []),
        (
            chain(repeat(of_rates(10, 10, 7), 6), repeat(of_rates(10, 10, 9), 6)),
            [(3, "straggler", True), (9, "straggler", False)],
        ),
        (repeat(of_rates(10), 20), []),
        (
            chain(
                repeat(of_work(0.06, 0.06, 0.09, 0.06), 6),
                repeat(of_work(0.06, 0.06, 0.07, 0.06), 6),
            ),
            [(3, "straggler", True), (9, "straggler", False)],
        ),
        (repeat(of_work(0.09, 0.06), 4), [(3, "straggler", True)]),
        (repeat(of_work(0.002, 0.001), 20), []),
        (repeat(of_work(0.09), 20), []),
        (
            chain(repeat(of_devices(60, 80), 12), repeat(of_devices(90, 95), 12)),
            [(9, "low_utilisation", True), (21, "low_utilisation", False)],
        ),
        (repeat(of_devices(70, 90), 30), []),
        (chain(repeat(of_rates(10), 30), repeat(of_rates(9), 30)), [(44, "slower", True)]),
        (chain(repeat(of_rates(10), 30), repeat(of_rates(9.7), 60)), []),
    ],
    ids=[
        "a loss that doubles",
        "a loss that wobbles",
        "a loss that wobbles as it always did",
        "a pod at 70 %",
        "one pod",
        "a rank that works 1.5 times as long, at equal rates",
        "the slower one of two ranks",
        "a slow rank that costs a hundredth of the step",
        "one rank",
        "devices at 70 %",
        "devices at 80 %",
        "10 % slower",
        "3 % slower",
    ],
)
def test_an_alert_is_raised_for_its_reason(
    windows: Iterable[RunWindow], expected: list[tuple[int, str, bool]]
) -> None:
    assert changes(windows) == expected


def test_single_bad_windows_raise_nothing() -> None:
    bad = RunWindow({"a": 10, "b": 1}, of_loss(9.0).losses, (5.0,))
    good = RunWindow({"a": 10, "b": 10}, of_loss(1.0).losses, (95.0,))
    assert changes(chain([good] * 12, [bad, good] * 30)) == []


def test_a_window_without_figures_neither_raises_nor_clears() -> None:
    windows = [of_devices(50)] * 9 + [RunWindow()] * 5 + [of_devices(50)] + [RunWindow()] * 20
    assert changes(windows) == [(14, "low_utilisation", True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_noisy_run_raises_nothing_in_a_day(seed: int) -> None:
    """Rates within 5 %, losses that fall and jump, devices between 80 and 100 %."""
    draw = random.Random(seed)
    windows = [
        RunWindow(
            rates={pod: 10 * draw.gauss(1, 0.05) for pod in "abcd"},
            losses=of_loss(
                2.0 / (1 + number / 100) * draw.gauss(1, 0.1) + 0.5, deviation=0.2
            ).losses,
            utilisation=tuple(draw.uniform(80, 100) for _ in range(4)),
        )
        for number in range(2880)
    ]
    assert changes(windows) == []


def test_what_is_said_names_the_figures() -> None:
    health, changed = Health(), ()
    for _ in range(4):
        health, changed = judge(health, of_rates(10, 10, 7))
    [change] = changed
    assert isinstance(change, Change)
    assert change.finding.detail == "pod_2 makes 70% of the steps per second of the middle pod"
    assert (change.finding.value, change.finding.threshold) == (0.7, 0.8)


def of_samples(losses: list[float]) -> RunWindow:
    mean = sum(losses) / len(losses)
    squares = sum((loss - mean) ** 2 for loss in losses)
    return RunWindow(
        losses={"loss": Statistics(len(losses), 0, mean, squares, min(losses), max(losses))}
    )


def noisy(rng: random.Random, per_window: int, floor: float, outliers: float) -> list[RunWindow]:
    """A loss that falls to its floor, with noise around it and an outlier now and then."""
    return [
        of_samples(
            [
                floor
                + 2 * 0.99 ** (window * per_window + sample)
                + abs(rng.gauss(0, 0.1))
                + (20 if rng.random() < outliers else 0)
                for sample in range(per_window)
            ]
        )
        for window in range(300)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_window", [1, 2, 30])
def test_a_healthy_loss_with_noise_does_not_diverge(seed: int, per_window: int) -> None:
    rng = random.Random(seed)
    outliers = 0.005 if per_window == 30 else 0.0
    assert changes(noisy(rng, per_window, 0.05, outliers)) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_loss_that_goes_back_to_its_beginning_diverges(seed: int) -> None:
    healthy = noisy(random.Random(seed), 2, 0.05, 0.0)
    raised = (len(healthy) + 2, "diverging", True)
    assert changes([*healthy, *repeat(of_samples([2.2, 2.4]), 10)]) == [raised]


ANY = st.floats(-1e300, 1e300)  # as windows bound them


@example([1e300, 1e-300], 1.0, 1.0, 0.0)
@example([1e300, 1.0], 1e300, -1e300, 0.0)
@given(st.lists(ANY, min_size=2, max_size=3), ANY, ANY, st.floats(0, 1e300))
def test_whatever_a_program_says_of_itself_alerts_have_finite_values_and_short_texts(
    work: list[float], first: float, then: float, deviation: float
) -> None:
    windows = [
        RunWindow(
            losses={"loss": Statistics(num_finite=5, mean=mean, squares=deviation)},
            utilisation=(mean,),
            work=dict(enumerate(work)),
        )
        for mean in [first] * 3 + [then] * 12
    ]
    for _, change in judged(windows):
        assert math.isfinite(change.finding.value)
        assert math.isfinite(change.finding.threshold)
        assert len(change.finding.detail) < 300


@pytest.mark.parametrize(
    ("window", "figure", "value"),
    [
        (RunWindow(), "straggler_ratio", None),
        (RunWindow(work={0: 2.0}), "straggler_ratio", None),
        (RunWindow(work={0: 2.0, 1: 1.0}), "straggler_ratio", 2.0),
        (RunWindow(work={0: 0.0, 1: 1.0}), "straggler_ratio", None),
        (RunWindow(work={0: 2.0, 1: 4.0, 2: 6.0}), "straggler_ratio", 1.5),
        (RunWindow(), "slowest_rank", None),
        (RunWindow(work={0: 2.0}), "slowest_rank", None),
        (RunWindow(work={2: 1.0, 1: 3.0, 0: 3.0}), "slowest_rank", 0),
        (RunWindow(), "slowest_share", None),
        (of_rates(4), "slowest_share", None),
        (of_rates(0, 0), "slowest_share", None),
        (of_rates(4, 2, 5), "slowest_share", 0.5),
        (RunWindow(), "steps_per_second", None),
        (of_rates(4, 2, 5), "steps_per_second", 4),
        (RunWindow(), "mean_utilisation", None),
        (of_devices(50, 70), "mean_utilisation", 60),
    ],
)
def test_a_figure_of_a_window_is_known_or_not(
    window: RunWindow, figure: str, value: float | None
) -> None:
    assert getattr(window, figure) == value


def first_raised(windows: Iterable[RunWindow]) -> int | None:
    return next((number for number, _, is_raised in changes(windows) if is_raised), None)


@pytest.mark.parametrize(
    ("window", "is_bad"),
    [
        (of_work(1.25, 1.0, 1.0), False),
        (of_work(1.26, 1.0, 1.0), True),
        # Of a step of 0.1 s: 0.005 s are a twentieth.
        (of_work(0.010, 0.005), True),
        (of_work(0.0098, 0.005), False),
        (RunWindow(work={0: 0.002, 1: 0.001}), True),
        (of_rates(10, 10, 8), False),
        (of_rates(10, 10, 7.9), True),
        (of_devices(75), False),
        (of_devices(74.9), True),
    ],
)
def test_a_figure_at_its_limit_is_not_bad(window: RunWindow, is_bad: bool) -> None:
    assert (first_raised(repeat(window, 12)) is not None) == is_bad


@pytest.mark.parametrize(
    ("before", "limit"),
    [
        ([of_loss(2.0)], 3.0),
        ([of_loss(-2.0)], -1.0),
        ([of_loss(9.0), of_loss(1.0)], 5.8),
        ([of_loss(1.0, 0.5)], 4.0),
        ([of_loss(1.0, 0.5), of_loss(0.5, 0.125)], 1.25),
    ],
)
def test_a_loss_diverges_above_the_most_of_three_limits(
    before: list[RunWindow], limit: float
) -> None:
    for mean, raised in ((limit - 0.01, None), (limit + 0.01, len(before) + 2)):
        assert first_raised([*before, *repeat(of_loss(mean), 3)]) == raised


def test_a_loss_that_jumps_between_windows_has_that_as_its_noise() -> None:
    """Of means that change by 0.4, a tenth is added at once and the rest over time."""
    known = _with_loss(
        _with_loss(None, of_loss(1.0, 0).losses["loss"]), of_loss(1.4, 0).losses["loss"]
    )
    assert (known.mean, known.newest) == (1.0, 1.4)
    assert known.wobble == pytest.approx(0.04)
    lower = _with_loss(known, of_loss(0.9, 0.2).losses["loss"])
    assert (lower.mean, lower.deviation, lower.first) == (0.9, pytest.approx(0.2), 1.0)
    assert lower.wobble == pytest.approx(0.04 + 0.1 * (0.5 - 0.04))
    assert _with_loss(lower, of_loss(9.0).losses["loss"]) == lower, "a bad window is no noise"
    assert _with_loss(lower, of_loss(0.9, 0.7).losses["loss"]).deviation == lower.deviation


def test_the_loss_farthest_above_its_limit_is_named_and_one_without_values_is_none() -> None:
    def losses(*means: float, num: int = 5) -> RunWindow:
        return RunWindow(
            losses={name: Statistics(num, 0, mean) for name, mean in zip("ab", means, strict=True)}
        )

    found = [*judged([losses(1.0, 1.0), *repeat(losses(5.0, 9.0), 3)])]
    assert [(number, change.finding.series) for number, change in found] == [(3, "b")]
    assert found[0][1].finding.detail == "b is 9 on average, and was 1"
    found = [*judged([losses(100.0, 1.0), *repeat(losses(151.0, 9.0), 3)])]
    assert [change.finding.series for _, change in found] == ["b"], "not the highest"
    assert changes([losses(1.0, 1.0), *repeat(losses(9.0, 9.0, num=0), 9)]) == []
    assert changes([losses(1.0, 1.0, num=0), *repeat(losses(9.0, 9.0), 9)]) == []


@pytest.mark.parametrize(
    ("num_first", "num_last", "raised"), [(21, 25, 44), (21, 24, 44), (21, 23, None)]
)
def test_a_pace_is_judged_after_20_windows_of_both_and_not_by_the_first(
    num_first: int, num_last: int, raised: int | None
) -> None:
    windows = chain(repeat(of_rates(10), num_first), repeat(of_rates(9), num_last))
    assert first_raised(windows) == raised


def paces(first: tuple[float, ...], last: tuple[float, ...]) -> Health:
    return Health(first_rates=first, last_rates=last)


def test_a_pace_is_slower_below_the_limit_that_its_noise_leaves() -> None:
    even, half = (10.0,) * 20, (9.0, 11.0) * 10
    assert _slower(paces(even[1:], even)) is None
    assert _slower(paces(even, even[1:])) is None
    assert _slower(paces((0.0,) * 20, even)) is None
    slow = _slower(paces((0.5,) * 20, (0.25,) * 20))
    assert slow is not None
    assert slow.is_bad
    for last, is_bad in ((9.5, False), (9.49, True), (10.0, False)):
        found = _slower(paces(even, (last,) * 20))
        assert found is not None
        assert (found.is_bad, found.value) == (is_bad, last / 10)
        assert found.threshold == pytest.approx(0.95)
    error = 1.2533 * 1.4826 / 20**0.5
    for first, last, noise in ((half, half, error * 2**0.5), (half, even, error)):
        found = _slower(paces(first, last))
        assert found is not None
        assert found.threshold == pytest.approx(1 - 4 * noise / 10)
    assert found.detail == "it makes 10 steps per second, and made 10 at first"


def test_the_first_rates_are_kept_and_of_the_last_the_newest() -> None:
    health = Health()
    for rate in (99, *range(1, 46)):
        health, _ = judge(health, of_rates(rate))
        health, _ = judge(health, of_rates(0))
        health, _ = judge(health, RunWindow())
    assert health.first_rates == (*range(1, 21),)
    assert health.last_rates == (*range(26, 46),)


def test_an_alert_of_several_is_cleared_alone() -> None:
    both = RunWindow({"a": 10, "b": 1}, utilisation=(5.0,))
    windows = chain(repeat(both, 10), repeat(RunWindow({"a": 10, "b": 10}, utilisation=(5.0,)), 20))
    assert changes(windows) == [
        (3, "straggler", True),
        (9, "low_utilisation", True),
        (13, "straggler", False),
    ]


@pytest.mark.parametrize(
    ("percents", "streak"),
    [((50,), 1), ((50, 50), 2), ((90,), -1), ((90, 90), -2), ((90, 50), 1), ((50, 90), -1)],
)
def test_bad_windows_in_a_row_are_counted_above_0_and_good_ones_below(
    percents: tuple[float, ...], streak: int
) -> None:
    health = Health()
    for percent in percents:
        health, _ = judge(health, of_devices(percent))
    assert health.streaks == {"low_utilisation": streak}


def test_a_loss_at_its_limit_does_not_diverge() -> None:
    assert changes([of_loss(2.0), *repeat(of_loss(3.0), 9)]) == []
