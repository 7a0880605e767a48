"""What the page of a study works out of its trials: importance, and the Pareto front."""

import random

import pytest

from services.gateway.core.fronts import pareto_front
from services.gateway.core.importance import (
    MIN_TRIALS,
    Importance,
    _bins,
    _explained,
    _ranks,
    importances,
)


def _searched(num: int) -> tuple[list[dict[str, bool | int | float | str]], list[float]]:
    draw = random.Random(7)
    points: list[dict[str, bool | int | float | str]] = []
    values = []
    for _ in range(num):
        rate, kind = draw.uniform(0, 1), draw.choice(["a", "b"])
        points.append({"rate": rate, "kind": kind, "idle": draw.randint(0, 1000)})
        values.append((rate - 0.4) ** 2 + 0.08 * (kind == "b"))
    return points, values


def test_the_hyperparameter_that_decides_is_first_and_one_without_effect_has_none() -> None:
    points, values = _searched(300)
    found = importances(points, values)
    assert [one.name for one in found] == ["rate", "kind", "idle"]
    assert found[0].share > 0.5
    assert 0.05 < found[1].share < 0.4
    assert found[2].share < 0.03


def test_one_diverged_trial_changes_no_importance() -> None:
    points, values = _searched(300)
    before = importances(points, values)
    worst = max(range(300), key=lambda at: values[at])
    values[worst] = 1e300
    assert importances(points, values) == before


def test_a_conditional_hyperparameter_is_judged_by_the_trials_that_have_it() -> None:
    points, values = _searched(100)
    for point in points[::2]:
        del point["rate"]
    found = {one.name: one for one in importances(points, values)}
    assert found["rate"].num_trials == 50
    assert found["rate"].share > 0.5


@pytest.mark.parametrize("num", [0, 9])
def test_too_few_trials_have_no_importance(num: int) -> None:
    assert importances(*_searched(num)) == []


def test_equal_values_and_points_explain_nothing() -> None:
    assert [one.share for one in importances([{"rate": 1.0}] * 20, [0.5] * 20)] == [0.0]
    points = [{"rate": float(at)} for at in range(20)]
    assert [one.share for one in importances(points, [0.5] * 20)] == [0.0]


def test_the_front_is_what_nothing_beats_in_all_objectives() -> None:
    values = {0: (0.9, 10.0), 1: (0.8, 5.0), 2: (0.8, 6.0), 3: (0.95, 20.0), 4: (0.7, 5.0)}
    assert pareto_front(values, ("maximize", "minimize")) == [0, 1, 3]
    assert pareto_front({0: (1.0,), 1: (1.0,), 2: (2.0,)}, ("minimize",)) == [0, 1]
    assert pareto_front({}, ("minimize",)) == []


def test_ranks_begin_at_1_and_equal_values_share_the_mean_of_theirs() -> None:
    assert _ranks([0.3, 0.1, 0.2]) == [3, 1, 2]
    assert _ranks([5, 1, 5, 5]) == [3, 1, 3, 3]
    assert _ranks([2, 2, 1]) == [2.5, 2.5, 1]


def test_bins_are_values_where_there_are_few_and_equal_counts_where_there_are_many() -> None:
    assert _bins(["b", "a", "b"]) == [1, 0, 1]
    assert _bins([True, 2, "x"]) == [1, 0, 2]
    assert _bins([3.0, 1.0, 3.0]) == [1, 0, 1]
    assert _bins([3.0, 1.0, 2.0]) == [1, 0, 1], "two bins at least"
    assert _bins([float(at) for at in range(8)]) == [0] * 4 + [1] * 4
    assert _bins([float(at) for at in range(12)]) == [0] * 4 + [1] * 4 + [2] * 4
    many = _bins([float(at) for at in range(100)])
    assert [many.count(label) for label in range(10)] == [10] * 10
    assert max(many) == 9
    assert _bins([float(at % 10) for at in range(100)]) == [at % 10 for at in range(100)]


@pytest.mark.parametrize(
    ("labels", "ranks", "share"),
    [
        ([0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0], 0.7),
        ([0, 1, 0, 1], [1.0, 2.0, 4.0, 3.0], 0.0),
        ([0, 0, 1, 1], [1.5, 1.5, 3.5, 3.5], 1.0),
        ([0, 0, 0, 0], [1.0, 2.0, 3.0, 4.0], 0.0),
        ([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0], 0.0),
        ([0, 0, 1, 1], [2.5, 2.5, 2.5, 2.5], 0.0),
        ([0, 0, 1], [1.0, 2.0, 3.0], 0.5),
    ],
)
def test_the_share_is_what_bins_explain_beyond_chance(
    labels: list[int], ranks: list[float], share: float
) -> None:
    assert _explained(labels, ranks) == pytest.approx(share)


def test_as_many_trials_as_are_needed_have_an_importance() -> None:
    points = [{"a": at % 2, "b": at % 2} for at in range(MIN_TRIALS)]
    values = [float(at % 2) for at in range(MIN_TRIALS)]
    both = [Importance(name, 1.0, MIN_TRIALS) for name in "ab"]
    assert importances(points, values) == both
    assert importances(points[1:], values[1:]) == []
    del points[0]["b"]
    assert importances(points, values) == both[:1]
