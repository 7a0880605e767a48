"""Studies: a search over hyperparameters; each trial is run by exactly one job."""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from drivetrain_schemas.base import Misfit, Payload, Strict, UtcTime, event
from drivetrain_schemas.ids import JobId, RequestId, StudyId, study_id_for
from drivetrain_schemas.jobs import (
    Count,
    FieldError,
    JobSpec,
    Metric,
    Name,
    Scalar,
    VariableName,
)
from drivetrain_schemas.spaces import Choice, Parameter
from drivetrain_schemas.text import free_text
from drivetrain_schemas.topics import COMMANDS_STUDIES, EVENTS_STUDIES

MAX_TRIALS = 100_000


class SamplerName(StrEnum):
    RANDOM = "random"
    GRID = "grid"


class StudySpec(Strict):
    """What to search: a job, the space of its hyperparameters, and the number of trials.

    A grid may be written without `max_trials`: then it has all its points.
    """

    name: Name
    job: JobSpec
    space: Annotated[dict[VariableName, Parameter], Field(min_length=1, max_length=64)]
    sampler: SamplerName = SamplerName.RANDOM
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    max_trials: Annotated[Count, Field(ge=1, le=MAX_TRIALS)]
    max_parallel_trials: Annotated[Count, Field(ge=1, le=1000)] = 1

    @model_validator(mode="before")
    @classmethod
    def _counts_the_points_of_a_grid(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("max_trials") is not None:
            return data
        num_points = _points_of_a_grid(data) if data.get("sampler") == SamplerName.GRID else None
        if num_points is None:
            return data
        if num_points > MAX_TRIALS:
            fix = f"write max_trials (at most {MAX_TRIALS:,}), or fewer points"
            raise Misfit(f"is a grid of {num_points:,} points", fix=fix, field="space")
        return {**data, "max_trials": num_points}

    @model_validator(mode="after")
    def _can_be_ranked(self) -> "StudySpec":
        if self.job.metric is None:
            raise Misfit(
                "is missing: trials are ranked by it",
                fix="add {name: ..., goal: minimize or maximize}",
                field="job.metric",
            )
        if self.sampler is SamplerName.GRID:
            for name, parameter in self.space.items():
                if not isinstance(parameter, Choice) and parameter.num is None:
                    raise Misfit(
                        "is missing: a grid needs a number of points",
                        fix="add it",
                        field=f"space.{name}.num",
                    )
        return self


def _points_of_a_grid(data: dict[Any, Any]) -> int | None:
    """How many combinations a written grid has; None where its space is not valid."""
    space = data.get("space")
    if not isinstance(space, dict):
        return None
    total = 1
    for parameter in space.values():
        written = parameter.model_dump() if isinstance(parameter, Strict) else parameter
        if not isinstance(written, dict):
            return None
        values, num = written.get("values"), written.get("num")
        if isinstance(values, list | tuple):
            total *= len(values)
        elif isinstance(num, int):
            total *= num
        else:
            return None
    return total


@event("study.submit", topic=COMMANDS_STUDIES, producer="any")
class StudySubmit(Payload):
    """Start this search. The same request_id again is the same study."""

    request_id: RequestId
    spec: StudySpec
    study_id: StudyId | None = None

    def key_within(self, tenant_id: str) -> str:
        return study_id_for(tenant_id, self.request_id)


@event("study.cancel", topic=COMMANDS_STUDIES, producer="any")
class StudyCancel(Payload):
    """End this study: no more trials, and the jobs of the running ones are cancelled."""

    study_id: StudyId
    reason: Annotated[str, free_text(512)] = ""


@event("study.cancel_rejected", topic=EVENTS_STUDIES, producer="hpo")
class StudyCancelRejected(Payload):
    """A study.cancel was refused: the study does not exist, or has ended."""

    study_id: StudyId
    command_event_id: str
    reason: Literal["no_such_study", "already_finished"]
    detail: str


@event("study_request.rejected", topic=EVENTS_STUDIES, producer="hpo")
class StudyRequestRejected(Payload):
    """A study.submit was refused; no study was started or changed."""

    study_id: StudyId
    request_id: str | None = None
    command_event_id: str
    reason: Literal["invalid_spec", "id_conflict", "too_large"]
    detail: str
    errors: tuple[FieldError, ...] = ()


@event("study.started", topic=EVENTS_STUDIES, producer="hpo")
class StudyStarted(Payload):
    """The study was accepted, with `num_trials` trials (a grid may have fewer points)."""

    study_id: StudyId
    request_id: RequestId
    spec: StudySpec
    num_trials: int
    started_at: UtcTime


@event("study.failed", topic=EVENTS_STUDIES, producer="hpo")
class StudyFailed(Payload):
    """The study ended before all its trials; `reason` is for machines, such as trials_refused."""

    study_id: StudyId
    reason: str
    detail: str
    num_completed: int
    num_failed: int
    finished_at: UtcTime


@event("study.cancelling", topic=EVENTS_STUDIES, producer="hpo")
class StudyCancelling(Payload):
    """The owner cancelled the study; the jobs of its running trials are being cancelled."""

    study_id: StudyId
    reason: str


@event("study.cancelled", topic=EVENTS_STUDIES, producer="hpo")
class StudyCancelled(Payload):
    """The study was cancelled, and none of its trials runs. The best is of those that ended."""

    study_id: StudyId
    reason: str
    num_completed: int
    num_failed: int
    best_number: int | None = None
    best_job_id: JobId | None = None
    best_value: float | None = None
    best_hyperparameters: dict[str, Scalar] | None = None
    metric: Metric
    finished_at: UtcTime


@event("trial.proposed", topic=EVENTS_STUDIES, producer="hpo")
class TrialProposed(Payload):
    """A point of the space, and the job that runs it."""

    study_id: StudyId
    number: int
    job_id: JobId
    hyperparameters: dict[str, Scalar]


@event("trial.completed", topic=EVENTS_STUDIES, producer="hpo")
class TrialCompleted(Payload):
    """The trial's job succeeded with this value of the study's metric."""

    study_id: StudyId
    number: int
    job_id: JobId
    hyperparameters: dict[str, Scalar]
    value: float
    is_best: bool


@event("trial.failed", topic=EVENTS_STUDIES, producer="hpo")
class TrialFailed(Payload):
    """The trial's job ended without a value."""

    study_id: StudyId
    number: int
    job_id: JobId
    hyperparameters: dict[str, Scalar]
    detail: str


@event("study.completed", topic=EVENTS_STUDIES, producer="hpo")
class StudyCompleted(Payload):
    """Every trial has ended. `best_number` is None when no trial has a value."""

    study_id: StudyId
    num_completed: int
    num_failed: int
    best_number: int | None = None
    best_job_id: JobId | None = None
    best_value: float | None = None
    best_hyperparameters: dict[str, Scalar] | None = None
    metric: Metric
    finished_at: UtcTime
