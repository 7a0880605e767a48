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
    as_it_is,
    changed,
    earliest,
    given,
    newest,
)
from services.gateway.core.requests import subject_of

STATES = ("submitted", "rejected", "running", "paused", "completed", "failed", "cancelled")
# What the end of a study has said, which it no longer says when the study goes on.
_OF_END = dict.fromkeys(
    ("finished_at", "failure", "best_number", "best_value", "ended_by", "pareto", "state_reason")
)


@dataclass(frozen=True, slots=True)
class Study:
    """`best_number` and `best_value` are those of the end; until then `trial_counts` has them."""

    study_id: str
    tenant_id: str
    state: str = "submitted"
    state_seq: int = NEVER
    state_reason: str | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    # Of the start, or of the last change.
    changed_seq: int = NEVER
    num_trials: int | None = None
    max_parallel_trials: int | None = None
    limits: dict[str, Any] | None = None
    best_number: int | None = None
    best_value: float | None = None
    ended_by: str | None = None
    pareto: list[Any] | None = None
    failure: str | None = None
    cancel_requested: bool = False
    refused_seq: int = NEVER
    refused_reason: str | None = None
    refused_detail: str | None = None
    refused_errors: list[Any] | None = None


def _move(study: Study, event: Event[Any], state: str, **facts: Any) -> Study:
    return newest(study, "state_seq", event, state=state, **{**_OF_END, **facts})


def _submitted(study: Study, event: Event[StudySubmit]) -> Study:
    return changed(study, submitted_at=earliest(study.submitted_at, event.occurred_at))


def _rejected(study: Study, event: Event[StudyRequestRejected]) -> Study:
    """A request is also refused for a study that runs: it asked for another one under its id."""
    facts = given(event, refused_reason="reason", refused_detail="detail", refused_errors="errors")
    return changed(
        newest(study, "refused_seq", event, **facts),
        state="rejected" if study.state == "submitted" else study.state,
        submitted_at=earliest(study.submitted_at, event.occurred_at),
    )


def _started(study: Study, event: Event[StudyStarted]) -> Study:
    spec = event.payload.spec
    known = newest(
        study,
        "changed_seq",
        event,
        num_trials=event.payload.num_trials,
        max_parallel_trials=spec.max_parallel_trials,
    )
    return _move(changed(known, **given(event, "started_at")), event, "running")


def _completed(study: Study, event: Event[StudyCompleted]) -> Study:
    return _move(
        study, event, "completed", **given(event, "finished_at", "best_number", "best_value")
    )


def _failed(study: Study, event: Event[StudyFailed]) -> Study:
    return _move(study, event, "failed", **given(event, "finished_at", failure="detail"))


def _cancelling(study: Study, _event: Event[StudyCancelling]) -> Study:
    return changed(study, cancel_requested=True)


def _cancelled(study: Study, event: Event[StudyCancelled]) -> Study:
    ended = given(event, "finished_at", "best_number", "best_value")
    return _move(study, event, "cancelled", **ended)


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
