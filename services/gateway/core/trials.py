"""A trial of a study, and the rungs at which it was judged, as they are shown."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import TrialCompleted, TrialFailed, TrialProposed
from services.gateway.core.noun import NEVER, Noun, changed, earliest, given, newest


@dataclass(frozen=True, slots=True)
class Trial:
    """`rung`, `measured` and `threshold` are of the last rung at which it was judged."""

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
    was_best: bool = False
    detail: str | None = None
    ended_at: datetime | None = None
    proposed_at: datetime | None = None
    parent: int | None = None
    why: str | None = None
    is_external: bool = False
    judged_seq: int = NEVER
    rung: int | None = None
    measured: float | None = None
    threshold: float | None = None


_OF_STATE = {
    "value": None,
    "objectives": None,
    "is_safe": True,
    "was_best": False,
    "detail": None,
    "ended_at": None,
}


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
        **given(event, "job_id", "hyperparameters"),
        proposed_at=earliest(trial.proposed_at, event.occurred_at),
    )
    return _move(known, event, "proposed")


def _completed(trial: Trial, event: Event[TrialCompleted]) -> Trial:
    facts = given(event, "value", was_best="is_best")
    return _move(trial, event, "completed", **facts, ended_at=event.occurred_at)


def _failed(trial: Trial, event: Event[TrialFailed]) -> Trial:
    return _move(trial, event, "failed", **given(event, "detail"), ended_at=event.occurred_at)


TRIALS = Noun(
    table="trials",
    view=Trial,
    key=("study_id", "number"),
    new=_new,
    rules={TrialProposed: _proposed, TrialCompleted: _completed, TrialFailed: _failed},
)
