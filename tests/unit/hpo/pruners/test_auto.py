"""The default pruner: who may still become the best goes on."""

import pytest

from services.hpo.core.trials import Measured, Trial, TrialState
from tests.unit.hpo.pruners.tables import POINT, Table, make_pruner


def make_table(**fields: int) -> Table:
    return Table(make_pruner(max_steps=90, type="auto", **fields))


def complete(table: Table, number: int, early: float, middle: float, final: float) -> None:
    assert table.judge(number, 10, early).verdict == "continue"
    assert table.judge(number, 30, middle).verdict == "continue"
    table.end(number, TrialState.COMPLETED, final)


def test_it_judges_at_a_ninth_and_a_third_of_the_steps() -> None:
    assert make_pruner(max_steps=52, type="auto").steps_of(0) == (5, 17)
    assert make_pruner(max_steps=5, type="auto").steps_of(0) == (1,)
    assert make_pruner(max_steps=2, type="auto").steps_of(0) == ()


def test_the_first_four_run_to_their_end() -> None:
    values = {0: 5.0, 1: 6.0, 2: 4.0, 3: 7.0}
    assert set(make_table().verdicts(10, values).values()) == {"continue"}


def test_before_a_trial_is_complete_what_none_has_beaten_goes_on() -> None:
    table = make_table()
    table.verdicts(10, {0: 5.0, 1: 6.0, 2: 4.0, 3: 7.0})
    assert table.verdicts(10, {4: 8.0, 5: 4.0, 6: 4.5, 7: 3.0}) == {
        4: "stop",
        5: "continue",
        6: "stop",
        7: "continue",
    }


def test_a_trial_goes_on_only_while_it_may_become_the_best() -> None:
    table = make_table()
    for number in range(4):
        complete(table, number, early=10.0 + number, middle=5.0 + number, final=2.0 + number)
    table.begin(6)
    assert table.judge(4, 10, 9.0).verdict == "continue"
    assert table.judge(5, 10, 20.0).verdict == "stop"
    judgement = table.judge(6, 10, 30.0)
    assert (judgement.verdict, judgement.rank, judgement.num_ranked) == ("stop", 7, 7)
    assert "a chance of 0%" in judgement.reason


@pytest.mark.parametrize(
    ("finals", "verdict"),
    [
        ((10.0, 11.0, 12.0, 13.0, 14.0, 15.0), "stop"),
        ((3.0, 3.05, 3.1, 3.05, 3.02, 3.1), "continue"),
    ],
    ids=["values at the rung tell the final ones", "values at the rung tell nothing"],
)
def test_a_value_in_the_middle_goes_on_where_it_may_still_win(
    finals: tuple[float, ...], verdict: str
) -> None:
    table = make_table()
    table.begin(len(finals))
    for number, final in enumerate(finals):
        early = Measured(10, 10.0 + number)
        table.trials.put(Trial(number, POINT, TrialState.COMPLETED, (final,), measured=(early,)))
    assert table.judge(len(finals), 10, 12.0).verdict == verdict


def judged_after(ends: list[tuple[float, float]], value: float) -> str:
    """The verdict at step 10 after trials with these losses there and at their end."""
    table = make_table()
    table.begin(len(ends))
    for number, (early, final) in enumerate(ends):
        measured = (Measured(10, early),)
        table.trials.put(Trial(number, POINT, TrialState.COMPLETED, (final,), measured=measured))
    return table.judge(len(ends), 10, value).verdict.value


@pytest.mark.parametrize(
    ("place", "verdict"), [(0, "stop"), (6, "continue")], ids=["the best led", "it was seventh"]
)
def test_where_the_best_came_unforeseen_the_next_may_too(place: int, verdict: str) -> None:
    ends = [(10.0 + each, 10.0 + each + 0.3 * (-1) ** each) for each in range(12)]
    ends[place] = (ends[place][0], 7.0)
    assert judged_after(ends, 14.0) == verdict


def test_a_trial_that_diverged_does_not_let_all_others_go_on() -> None:
    """Late, and to a finite loss that is millions of times as large: no line goes through it."""

    curves = [(10.0 + number, 5.0 + number, 2.0 + number) for number in range(10)]
    for diverges in (False, True):
        table = make_table()
        table.begin(14)
        for number, (early, middle, final) in enumerate(
            [*curves, (13.5, 8.5, 1e8)] if diverges else curves
        ):
            measured = (Measured(10, early), Measured(30, middle))
            state, values = TrialState.COMPLETED, (final,)
            table.trials.put(Trial(number, POINT, state, values, measured=measured))
        assert table.judge(12, 10, 19.5).verdict == "stop"
        assert table.judge(13, 10, 9.0).verdict == "continue"
