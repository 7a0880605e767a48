"""A study and its trials, as they are shown."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import (
    StudyCancelled,
    StudyCancelling,
    StudyCompleted,
    StudyFailed,
    StudyRequestRejected,
    StudyStarted,
    StudySubmit,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)
from services.gateway.core.noun import (
    NEVER,
    Key,
    Noun,
    Rule,
    as_it_is,
    changed,
    earliest,
    given,
    newest,
)
from services.gateway.core.requests import subject_of

# A study only moves to the right.
STATES = ("submitted", "rejected", "running", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Study:
    """`best_number` and `best_value` are those of the end; until then `trial_counts` has them."""

    study_id: str
    tenant_id: str
    state: str = "submitted"
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    num_trials: int | None = None
    best_number: int | None = None
    best_value: float | None = None
    failure: str | None = None
    cancel_requested: bool = False
    refused_seq: int = NEVER
    refused_reason: str | None = None
    refused_detail: str | None = None
    refused_errors: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    study_id: str
    number: int
    job_id: str
    hyperparameters: dict[str, Any]
    state: str = "proposed"
    state_seq: int = NEVER
    value: float | None = None
    detail: str | None = None


def _forward(study: Study, state: str, **facts: Any) -> Study:
    return changed(study, state=max(study.state, state, key=STATES.index), **facts)


def _submitted(study: Study, event: Event[StudySubmit]) -> Study:
    return changed(study, submitted_at=earliest(study.submitted_at, event.occurred_at))


def _rejected(study: Study, event: Event[StudyRequestRejected]) -> Study:
    facts = given(event, refused_reason="reason", refused_detail="detail", refused_errors="errors")
    refused = newest(study, "refused_seq", event, **facts)
    submitted_at = earliest(study.submitted_at, event.occurred_at)
    return _forward(refused, "rejected", submitted_at=submitted_at)


def _started(study: Study, event: Event[StudyStarted]) -> Study:
    return _forward(study, "running", **given(event, "num_trials", "started_at"))


def _completed(study: Study, event: Event[StudyCompleted]) -> Study:
    return _forward(study, "completed", **given(event, "finished_at", "best_number", "best_value"))


def _failed(study: Study, event: Event[StudyFailed]) -> Study:
    return _forward(study, "failed", failure=event.payload.detail, **given(event, "finished_at"))


def _cancelling(study: Study, _event: Event[StudyCancelling]) -> Study:
    return changed(study, cancel_requested=True)


def _cancelled(study: Study, event: Event[StudyCancelled]) -> Study:
    return _forward(study, "cancelled", **given(event, "finished_at", "best_number", "best_value"))


def _moves_to(state: str, fact: str | None = None) -> Rule:
    def move(trial: Trial, event: Event[Any]) -> Trial:
        facts = {"value": None, "detail": None, **(given(event, fact) if fact else {})}
        return newest(trial, "state_seq", event, state=state, **facts)

    return move


def _key_of(event: Event[Any]) -> Key:
    if isinstance(event.payload, StudySubmit):
        return (subject_of(event),)
    return (event.payload.study_id,)


STUDIES = Noun(
    table="studies",
    view=Study,
    key=("study_id",),
    key_of=_key_of,
    rules={
        StudySubmit: _submitted,
        StudyRequestRejected: _rejected,
        StudyStarted: _started,
        StudyCompleted: _completed,
        StudyFailed: _failed,
        StudyCancelling: _cancelling,
        StudyCancelled: _cancelled,
        **dict.fromkeys((TrialProposed, TrialCompleted, TrialFailed), as_it_is),
    },
)
TRIALS = Noun(
    table="trials",
    view=Trial,
    key=("study_id", "number"),
    rules={
        TrialProposed: _moves_to("proposed"),
        TrialCompleted: _moves_to("completed", "value"),
        TrialFailed: _moves_to("failed", "detail"),
    },
)
