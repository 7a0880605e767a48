"""A study and its trials, as they are shown."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import (
    StudyCancelled,
    StudyCancelling,
    StudyChanged,
    StudyCompleted,
    StudyFailed,
    StudyImport,
    StudyPaused,
    StudyRequestRejected,
    StudyResumed,
    StudyStarted,
    StudyStopping,
    StudySubmit,
)
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
from services.gateway.core.noun import (
    NEVER,
    Key,
    Noun,
    as_it_is,
    changed,
    earliest,
    given,
    moves_to,
    newest,
)
from services.gateway.core.requests import subject_of

STATES = (
    *("submitted", "rejected", "running", "paused", "stopping", "completed", "failed"),
    "cancelled",
)
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


_moves_to = partial(moves_to, _OF_END)
_ENDED = ("finished_at", "best_number", "best_value")


def _move(study: Study, event: Event[Any], state: str, **facts: Any) -> Study:
    return newest(study, "state_seq", event, state=state, **{**_OF_END, **facts})


def _submitted(study: Study, event: Event[Any]) -> Study:
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
        limits=_limits(spec),
    )
    return _move(changed(known, **given(event, "started_at")), event, "running")


def _changed(study: Study, event: Event[StudyChanged]) -> Study:
    """A study that had ended goes on if the change gives it more to do."""
    known = newest(
        study,
        "changed_seq",
        event,
        num_trials=event.payload.max_trials,
        max_parallel_trials=event.payload.max_parallel_trials,
        limits=_limits(event.payload),
    )
    return _move(known, event, "running") if event.payload.is_revived else known


def _limits(of: Any) -> dict[str, Any]:
    limits: dict[str, Any] = of.limits.model_dump(mode="json", exclude_none=True)
    return limits


def _cancelling(study: Study, _event: Event[StudyCancelling]) -> Study:
    return changed(study, cancel_requested=True)


def _key_of(event: Event[Any]) -> Key:
    if isinstance(event.payload, StudySubmit | StudyImport):
        return (subject_of(event),)
    return (event.payload.study_id,)


_OF_TRIALS = (
    *(TrialProposed, TrialJudged, TrialPaused, TrialPromoted),
    *(TrialStopping, TrialStopped, TrialCompleted, TrialFailed),
)
STUDIES = Noun(
    table="studies",
    view=Study,
    key=("study_id",),
    key_of=_key_of,
    rules={
        StudySubmit: _submitted,
        StudyImport: _submitted,
        StudyRequestRejected: _rejected,
        StudyStarted: _started,
        StudyChanged: _changed,
        StudyPaused: _moves_to("paused", state_reason="reason"),
        StudyResumed: _moves_to("running"),
        StudyStopping: _moves_to("stopping", "ended_by", state_reason="reason"),
        StudyCompleted: _moves_to("completed", *_ENDED, "ended_by", "pareto"),
        StudyFailed: _moves_to("failed", "finished_at", failure="detail"),
        StudyCancelling: _cancelling,
        StudyCancelled: _moves_to("cancelled", *_ENDED),
        **dict.fromkeys(_OF_TRIALS, as_it_is),
    },
)
