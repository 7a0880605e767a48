"""A run as it is shown: one attempt of a job, its times and how it ended."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunHeard,
    RunInterrupted,
    RunLost,
    RunStarted,
    RunStarting,
    RunSucceeded,
    RunSuspected,
)
from services.gateway.core.jobs import earliest
from services.gateway.core.noun import NEVER, Noun, by, newest


@dataclass(frozen=True, slots=True)
class Run:
    """What follows `ended_at` belongs to the end of the run."""

    run_id: str
    job_id: str
    attempt: int
    fence: int
    state: str = "starting"
    state_seq: int = NEVER
    num_pods: int | None = None
    starting_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    detail: str | None = None


_OF_END = dict.fromkeys(("ended_at", "exit_code", "signal", "rank", "detail"))


def _move(run: Run, event: Event[Any], state: str, **facts: Any) -> Run:
    return newest(run, "state_seq", event, state=state, **{**_OF_END, **facts})


def _starting(run: Run, event: Event[RunStarting]) -> Run:
    starting_at = earliest(run.starting_at, event.occurred_at)
    moved = _move(run, event, "starting")
    return replace(moved, num_pods=event.payload.num_pods, starting_at=starting_at)


def _started(run: Run, event: Event[RunStarted]) -> Run:
    started_at = earliest(run.started_at, event.payload.started_at)
    return replace(_move(run, event, "running"), started_at=started_at)


def _suspected(run: Run, event: Event[RunSuspected]) -> Run:
    return _move(run, event, "suspect")


def _heard(run: Run, event: Event[RunHeard]) -> Run:
    return _move(run, event, "running")


def _succeeded(run: Run, event: Event[RunSucceeded]) -> Run:
    return _ended(run, event, "succeeded")


def _failed(run: Run, event: Event[RunFailed]) -> Run:
    failed = event.payload
    cause = {"exit_code": failed.exit_code, "signal": failed.signal, "rank": failed.rank}
    return _ended(run, event, "failed", **cause)


def _lost(run: Run, event: Event[RunLost]) -> Run:
    return _ended(run, event, "lost", detail=event.payload.detail)


def _cancelled(run: Run, event: Event[RunCancelled]) -> Run:
    return _ended(run, event, "cancelled")


def _interrupted(run: Run, event: Event[RunInterrupted]) -> Run:
    return _ended(run, event, "interrupted")


def _ended(run: Run, event: Event[Any], state: str, **facts: Any) -> Run:
    return _move(run, event, state, **{"ended_at": event.payload.ended_at, "detail": "", **facts})


def _new(event: Event[Any]) -> Run:
    run = event.payload
    return Run(run.run_id, run.job_id, run.attempt, run.fence)


RUNS = Noun(
    table="runs",
    view=Run,
    key=("run_id",),
    key_of=by("run_id"),
    new=_new,
    rules={
        RunStarting: _starting,
        RunStarted: _started,
        RunSuspected: _suspected,
        RunHeard: _heard,
        RunSucceeded: _succeeded,
        RunFailed: _failed,
        RunLost: _lost,
        RunCancelled: _cancelled,
        RunInterrupted: _interrupted,
    },
)
