"""A run as it is shown: one attempt of a job, its times and how it ended."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from drivetrain_schemas import runs
from drivetrain_schemas.envelope import Event
from services.gateway.core.noun import NEVER, Noun, changed, earliest, moves_to, newest


@dataclass(frozen=True, slots=True)
class Run:
    run_id: str
    job_id: str
    attempt: int
    fence: int
    state: str = "starting"
    state_seq: int = NEVER
    unreachable_seq: int = NEVER
    unreachable: str | None = None
    num_pods: int | None = None
    starting_at: datetime | None = None
    started_at: datetime | None = None
    # These belong to its state: while it is suspect, and once it has ended.
    silent_since: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    detail: str | None = None


_OF_STATE = dict.fromkeys(("silent_since", "ended_at", "exit_code", "signal", "rank", "detail"))
_moves_to = partial(moves_to, _OF_STATE)


def _starting(run: Run, event: Event[runs.RunStarting]) -> Run:
    starting_at = earliest(run.starting_at, event.occurred_at)
    known = changed(run, num_pods=event.payload.num_pods, starting_at=starting_at)
    started: Run = _moves_to("starting")(known, event)
    return started


def _started(run: Run, event: Event[runs.RunStarted]) -> Run:
    known = changed(run, started_at=earliest(run.started_at, event.payload.started_at))
    running: Run = _moves_to("running")(known, event)
    return running


def _suspected(run: Run, event: Event[runs.RunSuspected]) -> Run:
    since = event.payload.last_heard_at or event.occurred_at
    facts = {**_OF_STATE, "silent_since": since}
    return newest(run, "state_seq", event, state="suspect", **facts)


def _unreachable(run: Run, event: Event[runs.RunUnreachable]) -> Run:
    why = event.payload.detail if event.payload.node_ids else None
    return newest(run, "unreachable_seq", event, unreachable=why)


RUNS = Noun(
    table="runs",
    view=Run,
    key=("run_id",),
    rules={
        runs.RunStarting: _starting,
        runs.RunStarted: _started,
        runs.RunSuspected: _suspected,
        runs.RunHeard: _moves_to("running"),
        runs.RunUnreachable: _unreachable,
        runs.RunSucceeded: _moves_to("succeeded", "ended_at"),
        runs.RunFailed: _moves_to("failed", "ended_at", "exit_code", "signal", "rank", "detail"),
        runs.RunLost: _moves_to("lost", "ended_at", "detail"),
        runs.RunCancelled: _moves_to("cancelled", "ended_at"),
        runs.RunStopped: _moves_to("stopped", "ended_at"),
        runs.RunInterrupted: _moves_to("interrupted", "ended_at", "detail"),
    },
)
