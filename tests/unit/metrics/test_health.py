"""Alerts from windows: each is raised for its reason, and a healthy run raises none."""

import math
import random
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.metrics.core.health import Change, Health, RunWindow, judge
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
