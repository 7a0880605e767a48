"""The states of jobs and runs, and the one table of moves that are allowed.

Every change of state goes through `move_job` or `move_run`; a move that is not in the table is a
bug and raises. Final states have no moves, so an outcome is final.
"""

from collections.abc import Mapping

from drivetrain_schemas.jobs import JobState
from drivetrain_schemas.runs import RunState

JOB_MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset(
        {JobState.STARTING, JobState.PAUSED, JobState.CANCELLED, JobState.STOPPED}
    ),
    JobState.STARTING: frozenset(
        {
            JobState.RUNNING,
            JobState.QUEUED,  # the run ended before all its pods had started, and is tried again
            JobState.SUCCEEDED,  # it succeeded although it was stopped while starting
            JobState.PAUSED,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.STOPPED,
        }
    ),
    JobState.RUNNING: frozenset(
        {
            JobState.QUEUED,
            JobState.PAUSED,
            JobState.SUCCEEDED,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.STOPPED,
        }
    ),
    JobState.PREEMPTING: frozenset(),  # preemption comes with its own policy
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED, JobState.STOPPED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.STOPPED: frozenset(),
}

_ENDS = frozenset(state for state in RunState if state.is_final)

RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    # A run whose pods never all started cannot succeed: `started` is emitted before the outcome.
    RunState.STARTING: (_ENDS - {RunState.SUCCEEDED}) | {RunState.RUNNING, RunState.STOPPING},
    RunState.RUNNING: _ENDS | {RunState.SUSPECT, RunState.STOPPING},
    # Missing heartbeats end nothing: only what the launcher observed does.
    RunState.SUSPECT: _ENDS | {RunState.RUNNING, RunState.STOPPING},
    RunState.STOPPING: _ENDS,
    **{state: frozenset() for state in _ENDS},
}


class ForbiddenMove(AssertionError):
    """A state change that is not in the table: a bug of the scheduler."""


def move_job(current: JobState, to: JobState) -> JobState:
    if to not in JOB_MOVES[current]:
        raise ForbiddenMove(f"a {current} job does not become {to}")
    return to


def move_run(current: RunState, to: RunState) -> RunState:
    if to not in RUN_MOVES[current]:
        raise ForbiddenMove(f"a {current} run does not become {to}")
    return to
