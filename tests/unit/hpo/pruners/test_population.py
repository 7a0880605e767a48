"""Population-based training: who is replaced, by whom, and with which hyperparameters."""

from collections import Counter

from services.hpo.core.pruners.population import Explore, explore
from services.hpo.core.strategies import Fork
from services.hpo.core.trials import TrialState
from tests.unit.hpo.pruners.tables import POINT, SPACE, Table, make_pruner

C, S = "continue", "stop"


def make_table(goal: str = "minimize", **spec: object) -> Table:
    spec = {"size": 4, "every_steps": 10, "max_trials": 6, **spec}
    return Table(make_pruner(type="population", **spec), goal)


def test_the_worst_quarter_is_replaced_by_a_copy_of_one_of_the_best() -> None:
    table = make_table()
    assert table.pruner.may_propose(table.trials)
    assert table.verdicts(10, {0: 3.0, 1: 1.0, 2: 2.0}) == {0: C, 1: C, 2: C}
    assert table.verdicts(10, {3: 4.0}) == {3: S}
    assert not table.pruner.may_propose(table.trials)
    assert table.all_next() == [("fork", 1)]
    child = table.trials[4]
    assert child.parent == 1
    assert child.point != POINT
    assert SPACE.is_feasible(child.point)


def test_a_maximum_is_the_other_way_round() -> None:
    table = make_table("maximize")
    table.verdicts(10, {0: 3.0, 1: 4.0, 2: 2.0})
    assert table.verdicts(10, {3: 1.0}) == {3: S}
    assert table.next() == ("fork", 1)


def test_nobody_is_replaced_when_there_are_no_further_trials() -> None:
    table = make_table(max_trials=4)
    assert table.verdicts(10, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}) == {0: C, 1: C, 2: C, 3: C}
    assert table.next() is None


def test_nobody_is_stopped_when_none_of_the_best_runs_any_more() -> None:
    """As where fewer trials run at a time than the population has."""
    table = make_table()
    for step in (10, 20):
        table.verdicts(step, {0: 1.0, 1: 2.0, 2: 3.0})
    for number in (0, 1):
        table.end(number, TrialState.COMPLETED, 1.0)
    assert table.verdicts(10, {3: 4.0}) == {3: C}
    assert table.verdicts(20, {3: 4.0}) == {3: C}
    assert table.next() is None


def test_a_failed_trial_is_replaced_as_soon_as_there_is_a_best_one() -> None:
    table = make_table()
    table.begin(3)
    table.end(0, TrialState.FAILED)
    assert table.next() is None
    table.verdicts(10, {1: 1.0, 2: 2.0, 3: 3.0})
    assert table.next() is None, "a quarter of three is none"
    assert table.trials[1].state is TrialState.RUNNING


def test_the_checkpoint_of_a_trial_that_ended_is_no_start() -> None:
    """A trial that is complete has no steps left, so nothing can go on from it."""
    table = make_table()
    table.verdicts(10, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0})
    table.end(0, TrialState.COMPLETED, 1.0)
    assert table.next() is None


def test_a_child_is_judged_like_the_others_and_may_have_children() -> None:
    table = make_table(size=4, max_trials=8)
    table.verdicts(10, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0})
    assert table.next() == ("fork", 0)
    table.verdicts(20, {0: 1.0, 1: 2.0, 2: 3.0})
    assert table.verdicts(20, {4: 0.5}) == {4: C}
    assert table.verdicts(30, {4: 0.5, 0: 1.0, 1: 2.0}) == {4: C, 0: C, 1: C}
    assert table.verdicts(30, {2: 3.0}) == {2: S}
    assert table.next() == ("fork", 4)
    assert table.trials[5].parent == 4


def test_a_change_multiplies_divides_or_draws_again() -> None:
    how = Explore(factor=1.25, resample=0.0)
    points = [explore(SPACE, how, POINT, 7, number) for number in range(200)]
    assert {point["optimizer"] for point in points} == {"sgd"}
    assert {point["learning_rate"] for point in points} == {0.008, 0.0125}
    assert {point["width"] for point in points} == {13, 20}
    assert 70 < Counter(point["width"] for point in points)[20] < 130
    drawn = [explore(SPACE, Explore(1.25, 1.0), POINT, 7, number) for number in range(200)]
    assert {point["optimizer"] for point in drawn} == {"sgd", "adam"}
    assert len({point["learning_rate"] for point in drawn}) == 200


def test_changes_stay_within_the_bounds() -> None:
    how = Explore(factor=10.0, resample=0.0)
    edge = {"learning_rate": 0.1, "optimizer": "adam", "width": 64}
    points = [explore(SPACE, how, edge, 0, number) for number in range(50)]
    assert {point["learning_rate"] for point in points} == {0.01, 0.1}
    assert {point["width"] for point in points} == {8, 64}


def test_a_small_whole_number_moves_all_the_same() -> None:
    table = make_table()
    point = {**POINT, "width": 8}
    moved = {explore(SPACE, Explore(1.01, 0.0), point, 0, n)["width"] for n in range(20)}
    assert moved == {8, 9}
    assert isinstance(table.pruner.next(table.trials), Fork | None)
