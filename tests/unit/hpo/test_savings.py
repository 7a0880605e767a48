"""What stopping trials early has saved."""

import pytest

from services.hpo.core.savings import saved_per_step_run
from services.hpo.core.trials import Measured, Trial, TrialState

STOPPED, COMPLETED = TrialState.STOPPED, TrialState.COMPLETED


def trial(number: int, state: TrialState, *steps: int) -> Trial:
    return Trial(number, {}, state, measured=tuple(Measured(step, 1.0) for step in steps))


@pytest.mark.parametrize(
    ("trials", "want"),
    [
        ([], 0.0),
        ([trial(0, STOPPED)], 0.0),
        ([trial(0, COMPLETED, 3, 9)], 0.0),
        ([trial(0, STOPPED, 3, 9, 20)], 80 / 20),
        ([trial(0, COMPLETED), trial(1, STOPPED, 20), trial(2, STOPPED)], 180 / 120),
        ([trial(0, COMPLETED), trial(1, TrialState.FAILED, 9), trial(2, TrialState.RUNNING)], 0.0),
    ],
)
def test_steps_left_out_for_each_that_was_run(trials: list[Trial], want: float) -> None:
    assert saved_per_step_run(trials, 100) == want
