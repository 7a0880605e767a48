"""A study and its trials, as they are shown."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import (
    StudyCompleted,
    StudyRequestRejected,
    StudyStarted,
    StudySubmit,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)
from services.gateway.core.jobs import earliest
from services.gateway.core.noun import NEVER, Key, Noun, as_it_is, by, newest
from services.gateway.core.requests import subject_of

# A study only moves to the right.
_STATES = ("submitted", "rejected", "running", "completed")


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
    return replace(study, state=max(study.state, state, key=_STATES.index), **facts)


def _submitted(study: Study, event: Event[StudySubmit]) -> Study:
    return replace(study, submitted_at=earliest(study.submitted_at, event.occurred_at))


def _rejected(study: Study, event: Event[StudyRequestRejected]) -> Study:
    payload = event.payload
    refused = newest(
        study,
        "refused_seq",
        event,
        refused_reason=payload.reason,
        refused_detail=payload.detail,
        refused_errors=[error.model_dump(mode="json") for error in payload.errors],
    )
    submitted_at = earliest(study.submitted_at, event.occurred_at)
    return _forward(refused, "rejected", submitted_at=submitted_at)


def _started(study: Study, event: Event[StudyStarted]) -> Study:
    started = event.payload
    started_at = earliest(study.started_at, started.started_at)
    return _forward(study, "running", num_trials=started.num_trials, started_at=started_at)


def _completed(study: Study, event: Event[StudyCompleted]) -> Study:
    done = event.payload
    return _forward(
        study,
        "completed",
        finished_at=earliest(study.finished_at, done.finished_at),
        best_number=done.best_number,
        best_value=done.best_value,
    )


def _key_of(event: Event[Any]) -> Key:
    if isinstance(event.payload, StudySubmit):
        return (subject_of(event),)
    return (event.payload.study_id,)


def _new_study(event: Event[Any]) -> Study:
    return Study(_key_of(event)[0], event.tenant_id)


def _proposed(trial: Trial, event: Event[TrialProposed]) -> Trial:
    return newest(trial, "state_seq", event, state="proposed", value=None, detail=None)


def _valued(trial: Trial, event: Event[TrialCompleted]) -> Trial:
    value = event.payload.value
    return newest(trial, "state_seq", event, state="completed", value=value, detail=None)


def _failed(trial: Trial, event: Event[TrialFailed]) -> Trial:
    detail = event.payload.detail
    return newest(trial, "state_seq", event, state="failed", value=None, detail=detail)


def _new_trial(event: Event[Any]) -> Trial:
    trial = event.payload
    return Trial(trial.study_id, trial.number, trial.job_id, dict(trial.hyperparameters))


STUDIES = Noun(
    table="studies",
    view=Study,
    key=("study_id",),
    key_of=_key_of,
    new=_new_study,
    rules={
        StudySubmit: _submitted,
        StudyRequestRejected: _rejected,
        StudyStarted: _started,
        StudyCompleted: _completed,
        TrialProposed: as_it_is,
        TrialCompleted: as_it_is,
        TrialFailed: as_it_is,
    },
)
TRIALS = Noun(
    table="trials",
    view=Trial,
    key=("study_id", "number"),
    key_of=by("study_id", "number"),
    new=_new_trial,
    rules={TrialProposed: _proposed, TrialCompleted: _valued, TrialFailed: _failed},
)
