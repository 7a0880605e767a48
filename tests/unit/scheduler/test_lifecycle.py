"""The table of moves: what it allows, and that final is final."""

import pytest

from drivetrain_schemas.jobs import JobState
from drivetrain_schemas.runs import RunState
from services.scheduler.core.lifecycle import (
    JOB_MOVES,
    RUN_MOVES,
    ForbiddenMove,
    move_job,
    move_run,
)


def test_every_state_is_in_the_table():
    assert JOB_MOVES.keys() == set(JobState)
    assert RUN_MOVES.keys() == set(RunState)


@pytest.mark.parametrize("state", [state for state in JobState if state.is_final])
def test_a_finished_job_stays_finished(state):
    for to in JobState:
        with pytest.raises(ForbiddenMove):
            move_job(state, to)


@pytest.mark.parametrize("state", [state for state in RunState if state.is_final])
def test_a_run_has_one_outcome(state):
    for to in RunState:
        with pytest.raises(ForbiddenMove):
            move_run(state, to)


@pytest.mark.parametrize("state", [state for state in RunState if not state.is_final])
def test_every_live_run_can_be_lost(state):
    assert move_run(state, RunState.LOST) is RunState.LOST


def test_a_waiting_job_does_not_succeed():
    with pytest.raises(ForbiddenMove):
        move_job(JobState.QUEUED, JobState.SUCCEEDED)
