"""What each event says of a study, its trials and requests is what is shown."""

from typing import Any

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.jobs import JobSubmit
from drivetrain_schemas.studies import (
    Limits,
    StudyCancelled,
    StudyChanged,
    StudyCompleted,
    StudyPaused,
    StudyRequestRejected,
    StudyResumed,
    StudyStarted,
    StudyStopping,
    StudySubmit,
)
from drivetrain_schemas.trials import (
    TrialCompleted,
    TrialJudged,
    TrialPaused,
    TrialPromoted,
    TrialProposed,
    TrialStopped,
)
from services.gateway.core.requests import REQUESTS, subject_of
from services.gateway.core.studies import STUDIES
from services.gateway.core.trials import RUNGS, TRIALS
from tests.handlers.gateway.story import START, spec
from tests.unit.gateway.views import JOB, STUDY, queued, shown, told, view

SEARCH: dict[str, Any] = {
    "name": "s",
    "job": spec("t").model_dump(mode="json"),
    "space": {"learning_rate": {"type": "uniform", "low": 0.1, "high": 0.2}},
    "max_trials": 5,
    "limits": {"hours": 2},
}
METRIC = {"name": "loss", "goal": "minimize"}
STARTED = StudyStarted.model_validate(
    {"study_id": STUDY, "request_id": "a", "spec": SEARCH, "num_trials": 5, "started_at": START}
)
SUBMITTED = StudySubmit.model_validate({"request_id": "a", "spec": SEARCH})
STOPPING = StudyStopping(study_id=STUDY, ended_by="hours", reason="its time is over")
COMPLETED = StudyCompleted.model_validate(
    {"study_id": STUDY, "num_completed": 5, "num_failed": 0, "best_number": 2, "best_value": 0.5}
    | {"metric": METRIC, "finished_at": START, "ended_by": "hours", "pareto": (1, 2)}
)
CANCELLED = StudyCancelled.model_validate(
    {"study_id": STUDY, "reason": "x", "num_completed": 1, "num_failed": 0, "best_number": 0}
    | {"metric": METRIC, "finished_at": START}
)


def changed(*, is_revived: bool) -> StudyChanged:
    return StudyChanged(
        study_id=STUDY, max_trials=9, max_parallel_trials=3, limits=Limits(), is_revived=is_revived
    )


@pytest.mark.parametrize(
    ("payloads", "want"),
    [
        ((SUBMITTED,), {"state": "submitted", "num_trials": None}),
        ((STARTED,), {"state": "running", "num_trials": 5, "limits": {"hours": 2}}),
        ((STARTED, SUBMITTED), {"state": "running"}),
        ((STARTED, changed(is_revived=False)), {"num_trials": 9, "limits": {}}),
        (
            (STARTED, StudyPaused(study_id=STUDY, reason="night")),
            {"state": "paused", "state_reason": "night"},
        ),
        (
            (
                STARTED,
                StudyPaused(study_id=STUDY, reason="night"),
                StudyResumed(study_id=STUDY),
            ),
            {"state": "running", "state_reason": None},
        ),
        ((STARTED, STOPPING), {"state": "stopping", "ended_by": "hours"}),
        ((STARTED, COMPLETED), {"state": "completed", "best_number": 2, "pareto": [1, 2]}),
        ((STARTED, COMPLETED, changed(is_revived=False)), {"state": "completed"}),
        (
            (STARTED, COMPLETED, changed(is_revived=True)),
            {"state": "running", "best_number": None, "finished_at": None, "num_trials": 9},
        ),
        ((STARTED, CANCELLED), {"state": "cancelled", "best_number": 0}),
    ],
)
def test_a_study_is_what_its_last_event_says(
    payloads: tuple[Payload, ...], want: dict[str, Any]
) -> None:
    study = view(STUDIES, *payloads)
    assert {name: getattr(study, name) for name in want} == want


def test_a_refused_study_is_rejected_and_one_that_runs_goes_on() -> None:
    refusal = StudyRequestRejected(
        study_id=STUDY, command_event_id="c", reason="id_conflict", detail="another one"
    )
    assert shown(view(STUDIES, refusal), "state", "refused_reason") == ("rejected", "id_conflict")
    assert view(STUDIES, STARTED, refusal).state == "running"


OF_TRIAL = {"study_id": STUDY, "number": 3, "job_id": JOB}
PROPOSED = TrialProposed(**OF_TRIAL, hyperparameters={"a": 1}, parent=0, rungs=(10, 20))
JUDGED = TrialJudged(
    **OF_TRIAL, step=10, value=0.0, verdict="stop", reason="poor", threshold=0.5, rank=2
)
DONE = TrialCompleted(
    **OF_TRIAL, hyperparameters={"a": 1}, value=0.5, is_best=True, values=(0.5, 1.0), is_safe=False
)
STOPPED = TrialStopped(**OF_TRIAL, hyperparameters={"a": 1}, reason="poor")


@pytest.mark.parametrize(
    ("payloads", "want"),
    [
        ((PROPOSED,), {"state": "proposed", "parent": 0, "rungs": [10, 20], "ended_at": None}),
        ((JUDGED,), {"state": "proposed", "hyperparameters": {}, "job_id": JOB}),
        ((STOPPED,), {"state": "stopped", "hyperparameters": {"a": 1}, "detail": "poor"}),
        ((PROPOSED, JUDGED), {"rung": 10, "measured": 0.0, "threshold": 0.5, "verdict": "stop"}),
        (
            (PROPOSED, DONE),
            {"state": "completed", "value": 0.5, "was_best": True, "is_safe": False},
        ),
        ((PROPOSED, TrialPaused(**OF_TRIAL, reason="r")), {"state": "paused", "detail": "r"}),
        ((DONE, TrialPromoted(**OF_TRIAL, why="good")), {"state": "proposed", "value": None}),
        ((DONE, STOPPED), {"was_best": False, "is_safe": True}),
    ],
)
def test_a_trial_is_what_its_last_event_says(
    payloads: tuple[Payload, ...], want: dict[str, Any]
) -> None:
    trial = view(TRIALS, *payloads)
    assert {name: getattr(trial, name) for name in want} == want


def test_a_rung_has_what_was_decided_there() -> None:
    rung = view(RUNGS, JUDGED)
    assert shown(rung, "step", "value", "verdict", "rank", "num_ranked") == (
        *(10, 0.0, "stop", 2),
        None,
    )


def test_the_request_of_a_study_shows_its_sampler_and_that_of_a_job_its_slots() -> None:
    study = view(REQUESTS, STARTED)
    assert shown(study, "sampler", "devices", "pool", "priority", "max_steps", "tags") == (
        *("auto", None, None, None, None),
        [],
    )
    assert shown(study, "metric", "goal", "is_accepted") == (
        *("validation_accuracy", "maximize"),
        True,
    )
    job = view(REQUESTS, queued(tags=["x"]))
    assert shown(job, "sampler", "devices", "max_steps", "tags") == (None, 2, 400, ["x"])
    assert view(REQUESTS, queued(metric=None)).metric is None
    assert not view(REQUESTS, SUBMITTED).is_accepted


def test_a_subject_has_one_id_before_and_after_it_is_accepted() -> None:
    submitted = JobSubmit(request_id="a", spec=spec("a"))
    assert subject_of(told(submitted)) == subject_of(told(queued())) == JOB
    assert subject_of(told(SUBMITTED)) == subject_of(told(STARTED)) == STUDY
    with pytest.raises(AssertionError, match="carries no request"):
        subject_of(told(STOPPING))
