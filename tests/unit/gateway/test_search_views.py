"""What the page of a study works out of its trials: importance, and the Pareto front."""

import random

import pytest

from services.gateway.core.fronts import pareto_front
from services.gateway.core.importance import importances


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
