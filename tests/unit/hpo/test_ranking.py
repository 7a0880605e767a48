"""Ranking is a total order that does not know in which order results arrived."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.hpo.core.ranking import Goal, Ranked, Reported, is_better, trial_value

TRIALS = st.lists(
    st.builds(Ranked, st.integers(0, 1000), st.sampled_from([-1.0, 0.0, -0.0, 0.5, 1e300])),
    min_size=1,
    unique_by=lambda trial: trial.number,
)


def best(goal: Goal, trials: list[Ranked]) -> Ranked | None:
    found: Ranked | None = None
    for trial in trials:
        if is_better(goal, trial, found):
            found = trial
    return found


@given(TRIALS, st.sampled_from(["minimize", "maximize"]), st.randoms())
def test_the_best_trial_does_not_depend_on_arrival(
    trials: list[Ranked], goal: Goal, random: object
) -> None:
    shuffled = list(trials)
    random.shuffle(shuffled)
    assert best(goal, shuffled) == best(goal, trials)


@pytest.mark.parametrize(("goal", "want"), [("minimize", 2), ("maximize", 1)])
def test_ties_go_to_the_lower_number(goal: Goal, want: int) -> None:
    trials = [Ranked(3, 0.1), Ranked(2, 0.1), Ranked(4, 0.9), Ranked(1, 0.9)]
    found = best(goal, trials)
    assert found is not None
    assert found.number == want


@pytest.mark.parametrize(
    ("reported", "want"),
    [
        pytest.param(Reported({"loss": 0.3}, "loss", "minimize", 0.1), 0.1, id="best before last"),
        pytest.param(Reported({"loss": 0.3}), 0.3, id="last where no best is known"),
        pytest.param(
            Reported({"loss": 0.3}, "accuracy", "maximize", 0.9), 0.3, id="best of another metric"
        ),
        pytest.param(
            Reported({"loss": 0.3}, "loss", "maximize", 0.8), 0.3, id="best of another goal"
        ),
        pytest.param(Reported({"accuracy": 0.9}), None, id="metric never logged"),
        pytest.param(None, None, id="no result"),
    ],
)
def test_the_value_of_a_trial(reported: Reported | None, want: float | None) -> None:
    assert trial_value(reported, "loss", "minimize") == want
