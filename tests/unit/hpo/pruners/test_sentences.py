"""What a pruner says about a trial: its place, what goes on, and the value that decides."""

from typing import Any

import pytest

from services.hpo.core.pruners.base import kept
from tests.unit.hpo.pruners.tables import Table, make_pruner


@pytest.mark.parametrize(
    ("num", "want"),
    [(0, "none goes on yet"), (1, "only the best goes on"), (2, "the best 2 go on")],
)
def test_how_many_go_on(num: int, want: str) -> None:
    assert kept(num) == want


def played(values: list[float], goal: str = "minimize", **spec: Any) -> list[tuple[Any, ...]]:
    table = Table(make_pruner(**spec), goal)
    found = [table.judge(number, 1, value) for number, value in enumerate(values)]
    return [(one.reason, one.threshold, one.rank, one.num_ranked) for one in found]


def test_asha_names_the_place_and_the_value_of_the_last_that_goes_on() -> None:
    asha = {"type": "asha", "min_steps": 1, "mode": "stop"}
    assert played([-3.0, -4.0, -2.0, -1.0, -5.0, -2.5], "maximize", **asha)[3:] == [
        ("It is number 1 of 4 at step 1: only the best goes on.", -1.0, 1, 4),
        ("It is number 5 of 5 at step 1: only the best goes on.", -1.0, 5, 5),
        ("It is number 3 of 6 at step 1: the best 2 go on.", -2.0, 3, 6),
    ]


def test_pausing_asha_has_no_such_value_while_none_goes_on() -> None:
    asha = {"type": "asha", "min_steps": 1, "mode": "pause"}
    assert played([3.0, 1.0, 2.0], **asha) == [
        ("It is number 1 of 1 at step 1: none goes on yet.", None, 1, 1),
        ("It is number 1 of 2 at step 1: none goes on yet.", None, 1, 2),
        ("It is number 2 of 3 at step 1: only the best goes on.", 1.0, 2, 3),
    ]


def test_halving_says_how_many_may_still_come() -> None:
    halving = {"type": "halving", "min_steps": 1, "max_steps": 9, "max_trials": 6}
    assert played([3.0, 1.0, 4.0, 2.0, 5.0, 0.5], **halving) == [
        ("It is number 1 of 1 at step 1: the best 2 go on, and 5 more may come.", None, 1, 1),
        ("It is number 1 of 2 at step 1: the best 2 go on, and 4 more may come.", 3.0, 1, 2),
        ("It is number 3 of 3 at step 1: the best 2 go on, and as many are better.", 3.0, 3, 3),
        ("It is number 2 of 4 at step 1: the best 2 go on, and 2 more may come.", 2.0, 2, 4),
        ("It is number 5 of 5 at step 1: the best 2 go on, and as many are better.", 2.0, 5, 5),
        ("It is number 1 of 6 at step 1: the best 2 go on.", 1.0, 1, 6),
    ]


def test_patience_says_what_it_waits_for_and_what_was_not_surpassed() -> None:
    table = Table(make_pruner(type="patience", every_steps=10, rungs=2, min_improvement=0.1))
    found = [table.judge(0, step, value) for step, value in ((10, 5.0), (20, 4.0), (30, 4.9))]
    assert [(one.reason, one.threshold) for one in found] == [
        ("It was measured at 1 rungs; 3 are needed.", None),
        ("It was measured at 2 rungs; 3 are needed.", None),
        ("It got better within its last 2 rungs.", 5.0),
    ]
    last = table.judge(0, 40, 3.95)
    assert last.reason == "It got no more than 0.1 better than 4 in its last 2 rungs."
    equal = Table(make_pruner(type="patience", every_steps=10, rungs=1))
    equal.judge(0, 10, 2.0)
    assert equal.judge(0, 20, 2.0).reason == "It got no better than 2 in its last 1 rungs."


def test_a_population_says_how_many_are_replaced() -> None:
    population = {"type": "population", "every_steps": 1, "size": 4, "quantile": 0.25}
    found = played([1.0, 2.0, 3.0, 4.0], max_steps=9, **population)
    assert found[:3] == [
        ("It is number 1 of 1 at step 1: 0 are replaced.", 1.0, 1, 1),
        ("It is number 2 of 2 at step 1: 0 are replaced.", 2.0, 2, 2),
        ("It is number 3 of 3 at step 1: 0 are replaced.", 3.0, 3, 3),
    ]
    assert found[3] == (
        "It is number 4 of 4 at step 1: a copy of a better one takes its place.",
        3.0,
        4,
        4,
    )
    alone = played([1.0, 2.0, 3.0, 4.0], max_steps=9, max_trials=4, **population)
    assert alone[3][0] == (
        "It is number 4 of 4 at step 1, and there are no further trials to replace it."
    )
