"""Trials: what a study decides about each of its points, and what others tell about them.

The trial of a study without jobs (`external`) has the derived `job_id` as well; no such job exists.
"""

from typing import Annotated, Literal

from pydantic import Field

from drivetrain_schemas.base import Payload, Strict, event
from drivetrain_schemas.ids import JobId, RequestId, StudyId
from drivetrain_schemas.specs import Count, Real, Scalar, VariableName
from drivetrain_schemas.text import free_text
from drivetrain_schemas.topics import COMMANDS_STUDIES, EVENTS_STUDIES
from drivetrain_schemas.units import Step

TrialNumber = Annotated[Count, Field(ge=0, le=1_000_000)]
# The judged metric and up to three further objectives.
Values = Annotated[tuple[Real, ...], Field(min_length=1, max_length=4)]
Point = Annotated[dict[VariableName, Scalar], Field(max_length=128)]


class _OfTrial(Payload):
    study_id: StudyId
    number: int
    job_id: JobId


@event("trial.proposed", topic=EVENTS_STUDIES, producer="hpo")
class TrialProposed(Payload):
    """A point of the space, and the job that runs it.

    `rungs` are the steps at which the trial is judged. `parent` is the trial from whose checkpoint
    it starts. `request_id` is that of the `study.ask` that this answers.
    """

    study_id: StudyId
    number: int
    job_id: JobId
    hyperparameters: dict[str, Scalar]
    why: str | None = None
    parent: int | None = None
    rungs: tuple[Step, ...] = ()
    request_id: RequestId | None = None
    is_external: bool = False


@event("trial.judged", topic=EVENTS_STUDIES, producer="hpo")
class TrialJudged(Payload):
    """What the pruner decided at a rung. A `value` of None was not logged, or is no number.

    `threshold` is the value of the metric that decided; `rank` counts from 1 among the
    `num_ranked` trials measured at this rung so far.
    """

    study_id: StudyId
    number: int
    job_id: JobId
    step: Step
    value: float | None = None
    verdict: Literal["continue", "stop", "pause"]
    reason: str
    threshold: float | None = None
    rank: int | None = None
    num_ranked: int | None = None


@event("trial.stopping", topic=EVENTS_STUDIES, producer="hpo")
class TrialStopping(_OfTrial):
    """The trial ends early; its job is being stopped."""

    reason: str


@event("trial.stopped", topic=EVENTS_STUDIES, producer="hpo")
class TrialStopped(_OfTrial):
    """The trial ended early. `value` was measured at `step`; stopped trials are not ranked."""

    hyperparameters: dict[str, Scalar]
    step: Step | None = None
    value: float | None = None
    reason: str


@event("trial.paused", topic=EVENTS_STUDIES, producer="hpo")
class TrialPaused(_OfTrial):
    """The trial's job holds a checkpoint and no devices until it is promoted."""

    step: Step | None = None
    reason: str


@event("trial.promoted", topic=EVENTS_STUDIES, producer="hpo")
class TrialPromoted(_OfTrial):
    """The paused trial goes on from its checkpoint."""

    why: str


@event("trial.completed", topic=EVENTS_STUDIES, producer="hpo")
class TrialCompleted(Payload):
    """The trial's job succeeded with this value of the study's metric.

    `values` are all objectives, first this one. A trial that is not safe cannot be the best;
    `safety` is its value of the study's safety metric.
    """

    study_id: StudyId
    number: int
    job_id: JobId
    hyperparameters: dict[str, Scalar]
    value: float
    is_best: bool
    values: Annotated[tuple[float, ...], Field(max_length=4)] = ()
    is_safe: bool = True
    safety: float | None = None


@event("trial.failed", topic=EVENTS_STUDIES, producer="hpo")
class TrialFailed(Payload):
    """The trial's job ended without a value."""

    study_id: StudyId
    number: int
    job_id: JobId
    hyperparameters: dict[str, Scalar]
    detail: str


@event("trial.report", topic=COMMANDS_STUDIES, producer="any")
class TrialReport(Payload):
    """The judged metric of an external trial at a step; `trial.judged` answers at its rungs."""

    study_id: StudyId
    number: TrialNumber
    step: Annotated[Count, Field(ge=0, le=2**53)]
    value: Real | None = None


@event("trial.tell", topic=COMMANDS_STUDIES, producer="any")
class TrialTell(Payload):
    """An external trial has ended: with `values`, or without them. Without, it failed, unless it
    stopped early as `trial.judged` said.
    """

    study_id: StudyId
    number: TrialNumber
    values: Values | None = None
    safety: Real | None = None
    is_stopped: Annotated[bool, Field(strict=True)] = False
    detail: Annotated[str, free_text(1024)] = ""


class FinishedTrial(Strict):
    """A trial that ended elsewhere; without `values` it failed."""

    hyperparameters: Point
    values: Values | None = None
    safety: Real | None = None
