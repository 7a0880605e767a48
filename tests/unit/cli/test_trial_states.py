"""The state of a trial in `drivetrain study show`."""

import pytest

from drivetrain.cli.studies import TRIAL_COLUMNS

STATE = next(column for column in TRIAL_COLUMNS if column.title == "STATE")


@pytest.mark.parametrize(
    ("trial", "want"),
    [
        ({"state": "proposed", "job_state": "running"}, "running"),
        ({"state": "proposed", "job_state": None}, "proposed"),
        ({"state": "paused", "job_state": "paused"}, "paused"),
        ({"state": "completed", "job_state": "succeeded"}, "completed"),
        ({"state": "completed", "is_safe": False}, "completed, unsafe"),
    ],
)
def test_a_trial_that_runs_is_running(trial: dict[str, object], want: str) -> None:
    assert STATE.cell(trial) == want
