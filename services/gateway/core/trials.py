"""A trial of a study, and the rungs at which it was judged, as they are shown."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.trials import (
    TrialCompleted,
    TrialFailed,
    TrialJudged,
    TrialPaused,
    TrialPromoted,
    TrialProposed,
    TrialStopped,
    TrialStopping,
)
from services.gateway.core.noun import NEVER, Noun, changed, earliest, given, moves_to, newest


@dataclass(frozen=True, slots=True)
class Trial:
    """`rung`, `measured`, `verdict` and `threshold` are of the last rung at which it was judged."""

    study_id: str
    number: int
    job_id: str
    hyperparameters: dict[str, Any]
    state: str = "proposed"
    state_seq: int = NEVER
    # These belong to the state and are replaced with it.
    value: float | None = None
    objectives: list[Any] | None = None
    is_safe: bool = True
    safety: float | None = None
    was_best: bool = False
    detail: str | None = None
    ended_at: datetime | None = None
    proposed_at: datetime | None = None
    parent: int | None = None
    why: str | None = None
    is_external: bool = False
    request_id: str | None = None
    rungs: list[Any] | None = None
    judged_seq: int = NEVER
    rung: int | None = None
    measured: float | None = None
    verdict: str | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Rung:
    """What was decided about a trial at a step."""

    study_id: str
    number: int
    step: int
    judged_seq: int = NEVER
    value: float | None = None
    verdict: str = "continue"
    threshold: float | None = None
    rank: int | None = None
    num_ranked: int | None = None
    reason: str = ""


_OF_STATE = {
    "value": None,
    "objectives": None,
    "is_safe": True,
    "safety": None,
    "was_best": False,
    "detail": None,
    "ended_at": None,
}


_moves_to = partial(moves_to, _OF_STATE)


def _move(trial: Trial, event: Event[Any], state: str, **facts: Any) -> Trial:
    return newest(trial, "state_seq", event, state=state, **{**_OF_STATE, **facts})


def _new(event: Event[Any]) -> Trial:
    """An event that overtakes the proposal may not carry all that the proposal does."""
    payload = event.payload
    return Trial(
        study_id=payload.study_id,
        number=payload.number,
        job_id=getattr(payload, "job_id", None) or "",
        hyperparameters=dict(getattr(payload, "hyperparameters", None) or {}),
    )


def _proposed(trial: Trial, event: Event[TrialProposed]) -> Trial:
    known = changed(
        trial,
        **given(event, "job_id", "hyperparameters", "parent", "why", "request_id"),
        **given(event, "is_external", "rungs"),
        proposed_at=earliest(trial.proposed_at, event.occurred_at),
    )
    return _move(known, event, "proposed")


def _judged(trial: Trial, event: Event[TrialJudged]) -> Trial:
    facts = given(event, "verdict", "threshold", rung="step", measured="value")
    return newest(trial, "judged_seq", event, **facts)


def _stopped(trial: Trial, event: Event[TrialStopped]) -> Trial:
    facts = given(event, detail="reason")
    return _move(trial, event, "stopped", **facts, ended_at=event.occurred_at)


def _completed(trial: Trial, event: Event[TrialCompleted]) -> Trial:
    facts = given(event, "value", "is_safe", "safety", objectives="values", was_best="is_best")
    return _move(trial, event, "completed", **facts, ended_at=event.occurred_at)


def _failed(trial: Trial, event: Event[TrialFailed]) -> Trial:
    return _move(trial, event, "failed", **given(event, "detail"), ended_at=event.occurred_at)


def _decided(rung: Rung, event: Event[TrialJudged]) -> Rung:
    facts = given(event, "value", "verdict", "threshold", "rank", "num_ranked", "reason")
    return newest(rung, "judged_seq", event, **facts)


TRIALS = Noun(
    table="trials",
    view=Trial,
    key=("study_id", "number"),
    new=_new,
    rules={
        TrialProposed: _proposed,
        TrialJudged: _judged,
        TrialStopping: _moves_to("stopping", detail="reason"),
        TrialPaused: _moves_to("paused", detail="reason"),
        TrialPromoted: _moves_to("proposed", detail="why"),
        TrialStopped: _stopped,
        TrialCompleted: _completed,
        TrialFailed: _failed,
    },
)
RUNGS = Noun(
    table="trial_rungs",
    view=Rung,
    key=("study_id", "number", "step"),
    new=lambda event: Rung(event.payload.study_id, event.payload.number, event.payload.step),
    rules={TrialJudged: _decided},
)
