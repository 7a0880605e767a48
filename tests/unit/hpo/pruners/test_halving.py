"""Halving, Hyperband, ASHA and PASHA: the tables of the papers, and ties, by hand."""

from collections import Counter

import pytest

from services.hpo.core.trials import TrialState
from tests.unit.hpo.pruners.tables import Table, make_pruner

C, S, P = "continue", "stop", "pause"
NINE = {number: float(number) for number in range(9)}


def test_rungs_grow_by_the_factor_and_end_before_the_full_length() -> None:
    assert make_pruner(type="asha", min_steps=1).steps_of(7) == (1, 3, 9, 27)
    assert make_pruner(type="asha", min_steps=1, max_steps=82).steps_of(7) == (1, 3, 9, 27, 81)
    assert make_pruner(type="halving", min_steps=5, reduction_factor=2).steps_of(0) == (
        (5, 10, 20, 40, 80)
    )


# Stopping ASHA, as in determined's asha_stopping_test.go: factor 3, the best third goes on.
STOPPING = [
    ("minimize", [1, 2, 3, 4, 5, 6, 7, 8, 9], [C, S, S, S, S, S, S, S, S]),
    ("minimize", [9, 8, 7, 6, 5, 4, 3, 2, 1], [C] * 9),
    ("maximize", [9, 8, 7, 6, 5, 4, 3, 2, 1], [C] + [S] * 8),
    ("maximize", [1, 2, 3, 4, 5, 6, 7, 8, 9], [C] * 9),
    # The sixth is second of six, and two of six go on.
    ("minimize", [1, 3, 3, 3, 3, 2], [C, S, S, S, S, C]),
    # Equal values rank by number, but what none has beaten goes on.
    ("minimize", [1, 1, 1, 1, 1, 1], [C] * 6),
    ("maximize", [5, 4, 4, 5, 4, 5], [C, S, S, C, S, C]),
]


@pytest.mark.parametrize(("goal", "values", "verdicts"), STOPPING)
def test_stopping_asha_keeps_the_best_third_so_far(
    goal: str, values: list[float], verdicts: list[str]
) -> None:
    table = Table(make_pruner(type="asha", min_steps=1), goal)
    assert list(table.verdicts(1, dict(enumerate(values))).values()) == verdicts
    assert table.next() is None, "nothing pauses"


def test_a_trial_without_a_value_stops_once_another_has_one() -> None:
    table = Table(make_pruner(type="asha", min_steps=1))
    assert table.verdicts(1, {0: None, 1: None, 2: 5.0, 3: None}) == {0: C, 1: C, 2: C, 3: S}
    judgement = Table(table.pruner).judge(0, 1, None)
    assert judgement.reason == "No trial has a value at step 1 yet."


def test_pausing_asha_promotes_when_enough_worse_ones_have_come() -> None:
    table = Table(make_pruner(type="asha", min_steps=1, mode="pause"))
    assert table.verdicts(1, {0: 3.0, 1: 2.0}) == {0: P, 1: P}
    assert table.next() is None, "a third of two is none"
    assert table.verdicts(1, {2: 4.0}) == {2: P}
    assert table.next() == ("promote", 1)
    assert table.next() is None, "it is promoted once"
    assert table.verdicts(1, {3: 1.0, 4: 5.0}) == {3: C, 4: P}, (
        "3 is the best, and one of 4 goes on"
    )
    assert table.verdicts(1, {5: 6.0}) == {5: P}
    assert table.next() is None, "1 and 3 are the two best of six"
    assert table.verdicts(3, {1: 2.0, 3: 1.0}) == {1: P, 3: P}
    assert table.verdicts(1, {6: 7.0, 7: 7.0, 8: 7.0}) == {6: P, 7: P, 8: P}
    assert table.next() == ("promote", 0)
    assert table.verdicts(3, {0: 0.5}) == {0: C}, "the best of three goes straight on"


def test_pausing_asha_lets_all_go_on_that_are_equally_best() -> None:
    table = Table(make_pruner(type="asha", min_steps=1, mode="pause"))
    assert table.verdicts(1, {0: 1.0, 1: 1.0, 2: 1.0, 3: 2.0}) == {0: P, 1: P, 2: C, 3: P}
    assert table.all_next() == [("promote", 0), ("promote", 1)]


def test_pausing_asha_prefers_the_highest_rung() -> None:
    table = Table(make_pruner(type="asha", min_steps=1, mode="pause"))
    assert table.verdicts(1, NINE) == dict.fromkeys(NINE, P)
    assert table.all_next() == [("promote", 0), ("promote", 1), ("promote", 2)]
    assert table.verdicts(3, {2: 2.0, 1: 1.0, 0: 3.0}) == {2: P, 1: P, 0: P}
    assert table.verdicts(1, dict.fromkeys((9, 10, 11), 9.0)) == dict.fromkeys((9, 10, 11), P)
    assert table.all_next() == [("promote", 1), ("promote", 3)]


def test_pausing_asha_takes_its_best_to_the_end_and_drops_the_others() -> None:
    table = Table(make_pruner(type="asha", min_steps=1, mode="pause", max_steps=9, max_trials=3))
    assert table.verdicts(1, {0: 3.0, 1: 2.0, 2: 4.0}) == {0: P, 1: P, 2: P}
    assert table.all_next() == [("promote", 1)]
    assert table.verdicts(3, {1: 2.0}) == {1: C}, "no other runs, and none is complete"
    table.end(1, TrialState.COMPLETED, 2.0)
    assert table.all_next() == [("drop", 2), ("drop", 0)]


def test_if_the_best_fails_on_its_last_way_the_next_one_goes() -> None:
    table = Table(make_pruner(type="asha", min_steps=1, mode="pause", max_steps=9, max_trials=3))
    table.verdicts(1, {0: 3.0, 1: 2.0, 2: 4.0})
    assert table.all_next() == [("promote", 1)]
    table.end(1, TrialState.FAILED)
    assert table.all_next() == [("promote", 0)]


def test_halving_of_nine_keeps_three_and_then_one() -> None:
    table = Table(make_pruner(type="halving", min_steps=1, max_steps=9, max_trials=9))
    assert table.verdicts(1, {0: 8.0, 1: 7.0, 2: 6.0, 3: 9.0}) == {0: P, 1: P, 2: P, 3: S}
    assert table.next() is None, "five are still to come"
    assert table.verdicts(1, {4: 1.0, 5: 2.0, 6: 9.0, 7: 9.0}) == {4: P, 5: P, 6: S, 7: S}
    assert table.verdicts(1, {8: 3.0}) == {8: C}, "now it is known: 4, 5 and 8"
    assert table.all_next() == [("promote", 4), ("promote", 5)]
    assert table.verdicts(3, {8: 3.0, 5: 2.0, 4: 1.0}) == {8: P, 5: P, 4: C}
    assert table.all_next() == []
    table.end(4, TrialState.COMPLETED, 1.0)
    assert [kind for kind, _ in table.all_next()] == ["drop"] * 5


def test_halving_of_the_worst_order_stops_early_and_keeps_the_same() -> None:
    table = Table(make_pruner(type="halving", min_steps=1, max_steps=9, max_trials=9))
    assert table.verdicts(1, NINE) == {0: P, 1: P, 2: P} | dict.fromkeys(range(3, 9), S)
    assert table.all_next() == [("promote", 0), ("promote", 1), ("promote", 2)]


def test_a_trial_that_fails_on_its_way_holds_up_nobody() -> None:
    table = Table(make_pruner(type="halving", min_steps=1, max_steps=9, max_trials=6))
    table.begin(5)
    table.end(0, TrialState.FAILED)
    table.verdicts(1, {5: 5.0, 4: 4.0, 3: 3.0, 2: 2.0})
    assert table.next() is None
    table.end(1, TrialState.FAILED)
    assert table.all_next() == [("promote", 2), ("promote", 3)]


def test_hyperband_has_the_brackets_of_the_paper() -> None:
    """Li et al., algorithm 1 with R = 81 and a factor of 3: 81, 34, 15, 8 and 5 trials."""
    pruner = make_pruner(type="hyperband", min_steps=1, max_trials=200)
    groups = Counter(pruner.group_of(number) for number in range(200))
    assert groups == {0: 81, 1: 34, 2: 15, 3: 8, 4: 5, 5: 57}
    rungs = {pruner.group_of(number): pruner.steps_of(number) for number in range(200)}
    assert rungs == {
        0: (1, 3, 9, 27),
        1: (3, 9, 27),
        2: (9, 27),
        3: (27,),
        4: (),
        5: (1, 3, 9, 27),
    }


def test_hyperband_ranks_within_a_bracket() -> None:
    """Two brackets of R = 3: 3 trials from step 1, then 2 without a rung."""
    table = Table(make_pruner(type="hyperband", min_steps=1, max_steps=3, max_trials=10))
    first = {0: 1.0, 1: 2.0, 2: 3.0}
    assert table.verdicts(1, first) == {0: P, 1: S, 2: S}
    assert table.pruner.steps_of(3) == table.pruner.steps_of(4) == ()
    # The second round's best is worse than all of the first, and goes on all the same.
    assert table.verdicts(1, {7: 9.0, 6: 8.0, 5: 7.0}) == {7: P, 6: P, 5: C}
    assert table.all_next() == [("promote", 0)]
    table.end(0, TrialState.COMPLETED, 1.0)
    table.end(5, TrialState.COMPLETED, 7.0)
    assert table.all_next() == [("drop", 7), ("drop", 6)]


def test_the_last_bracket_has_what_is_left() -> None:
    table = Table(make_pruner(type="hyperband", min_steps=1, max_steps=9, max_trials=4))
    assert table.verdicts(1, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}) == {0: P, 1: S, 2: S, 3: S}
    assert table.all_next() == [("promote", 0)]


def play_pasha(values: dict[int, dict[int, float]], goal: str = "minimize") -> Table:
    """Nine trials at step 1, the promoted ones on up; `values` by step and number."""
    table = Table(make_pruner(type="pasha", min_steps=1, max_steps=27, max_trials=100), goal)
    table.verdicts(1, NINE if goal == "minimize" else {n: -v for n, v in NINE.items()})
    for step in sorted(values):
        table.all_next()
        table.verdicts(step, values[step])
    return table


def test_pasha_opens_no_rung_while_the_ranking_stays() -> None:
    table = play_pasha({3: {0: 0.0, 1: 1.0, 2: 2.0}})
    assert table.next() is None
    assert table.trials[0].state is TrialState.PAUSED


def test_pasha_opens_a_rung_when_the_ranking_changes() -> None:
    table = play_pasha({3: {0: 1.0, 1: 0.0, 2: 2.0}})
    assert table.all_next() == [("promote", 1)]


def test_pasha_opens_a_rung_when_the_ranking_changes_upwards() -> None:
    table = play_pasha({3: {0: -1.0, 1: 0.0, 2: -2.0}}, "maximize")
    assert table.all_next() == [("promote", 1)]


def test_pasha_takes_trials_that_cross_and_cross_back_for_equal() -> None:
    """0 and 1 change places at 3 and again at 9: their order is noise, as wide as they are apart.

    Without noise the ranking at 9 differs from that at 3, and the rung at 27 would open.
    """
    table = Table(make_pruner(type="pasha", min_steps=1, max_steps=81, max_trials=100))
    table.verdicts(1, {0: 1.0, 1: 2.0} | {number: 20.0 + number for number in range(2, 18)})
    table.all_next()
    table.verdicts(3, {0: 2.0, 1: 1.0, 2: 22.0, 3: 23.0, 4: 24.0, 5: 25.0})
    assert table.all_next() == [("promote", 1), ("promote", 0)]
    assert table.verdicts(9, {0: 1.0, 1: 2.0}) == {0: P, 1: P}
    assert table.next() is None


def test_pasha_takes_the_best_to_the_end() -> None:
    table = Table(make_pruner(type="pasha", min_steps=1, max_steps=27, max_trials=9))
    table.verdicts(1, NINE)
    assert table.all_next() == [("promote", 0), ("promote", 1), ("promote", 2)]
    assert table.verdicts(3, {2: 2.0, 1: 1.0, 0: 0.0}) == {2: P, 1: P, 0: C}
    assert table.verdicts(9, {0: 0.0}) == {0: C}
