"""Studies: a search over hyperparameters, from request to end.

Its spec is in `study_specs` (exported here as well), what happens to each trial in `trials`.
"""

from typing import Annotated, Literal

from pydantic import Field

from drivetrain_schemas.base import Payload, UtcTime, event
from drivetrain_schemas.ids import JobId, RequestId, StudyId, study_id_for
from drivetrain_schemas.jobs import FieldError, Metric, Scalar
from drivetrain_schemas.spaces import Choice, Integer, Parameter, Uniform
from drivetrain_schemas.study_specs import (
    MAX_TRIALS,
    Limits,
    NumParallelTrials,
    NumTrials,
    SamplerName,
    StudySpec,
)
from drivetrain_schemas.text import free_text
from drivetrain_schemas.topics import COMMANDS_STUDIES, EVENTS_STUDIES
from drivetrain_schemas.trials import (
    FinishedTrial,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)

__all__ = [
    "MAX_TRIALS",
    "Choice",
    "Integer",
    "Limits",
    "Parameter",
    "SamplerName",
    "StudySpec",
    "TrialCompleted",
    "TrialFailed",
    "TrialProposed",
    "Uniform",
]

Reason = Annotated[str, free_text(512)]
EndedBy = Literal[
    "max_trials",
    "space_exhausted",
    "device_hours",
    "cost",
    "hours",
    "no_improvement",
    "stopped",
]


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
    reason: Reason = ""


@event("study.pause", topic=COMMANDS_STUDIES, producer="any")
class StudyPause(Payload):
    """Start no further trials until `study.resume`.

    With `trials` pause the running ones are paused as well: they keep a checkpoint and no devices.
    """

    study_id: StudyId
    reason: Reason = ""
    trials: Literal["finish", "pause"] = "finish"


@event("study.resume", topic=COMMANDS_STUDIES, producer="any")
class StudyResume(Payload):
    """Go on with this paused study."""

    study_id: StudyId


@event("study.stop", topic=COMMANDS_STUDIES, producer="any")
class StudyStop(Payload):
    """End this study early with what it has found: its running trials are stopped."""

    study_id: StudyId
    reason: Reason = ""


@event("study.change", topic=COMMANDS_STUDIES, producer="any")
class StudyChange(Payload):
    """Replace these numbers of the study; what is left out stays.

    `limits` replaces all limits; of `changed_limits` those that are given, so that two changes at
    the same time both count. A completed study goes on when there is more to do: `max_trials`
    extends it.
    """

    study_id: StudyId
    max_trials: NumTrials | None = None
    max_parallel_trials: NumParallelTrials | None = None
    limits: Limits | None = None
    changed_limits: Limits | None = None


@event("study.ask", topic=COMMANDS_STUDIES, producer="any")
class StudyAsk(Payload):
    """Propose the next trial of an external study; `trial.proposed` answers with the request_id.

    The same request_id again is the same trial.
    """

    study_id: StudyId
    request_id: RequestId


@event("study.import", topic=COMMANDS_STUDIES, producer="any")
class StudyImport(Payload):
    """Start this search with trials that ended elsewhere as its first ones.

    They count towards `max_trials`; where that is their number, the study completes at once.
    """

    request_id: RequestId
    spec: StudySpec
    trials: Annotated[tuple[FinishedTrial, ...], Field(min_length=1, max_length=1000)]
    study_id: StudyId | None = None

    def key_within(self, tenant_id: str) -> str:
        return study_id_for(tenant_id, self.request_id)


@event("study_command.rejected", topic=EVENTS_STUDIES, producer="hpo")
class StudyCommandRejected(Payload):
    """A command about a study or one of its trials was refused; nothing was changed."""

    study_id: StudyId
    command_event_id: str
    command: str
    reason: Literal[
        "no_such_study",
        "no_such_trial",
        "already_finished",
        "not_external",
        "not_paused",
        "too_many_running",
        "no_further_point",
        "invalid",
    ]
    detail: str
    errors: tuple[FieldError, ...] = ()


@event("study.paused", topic=EVENTS_STUDIES, producer="hpo")
class StudyPaused(Payload):
    """The study starts no further trials until it is resumed."""

    study_id: StudyId
    reason: str
    trials: Literal["finish", "pause"] = "finish"


@event("study.resumed", topic=EVENTS_STUDIES, producer="hpo")
class StudyResumed(Payload):
    """The study goes on."""

    study_id: StudyId


@event("study.changed", topic=EVENTS_STUDIES, producer="hpo")
class StudyChanged(Payload):
    """The study's numbers from now on. A study that had completed runs again (`is_revived`)."""

    study_id: StudyId
    max_trials: int
    max_parallel_trials: int
    limits: Limits
    is_revived: bool = False


@event("study.stopping", topic=EVENTS_STUDIES, producer="hpo")
class StudyStopping(Payload):
    """The study ends early, and its running trials are being stopped."""

    study_id: StudyId
    ended_by: EndedBy
    reason: str


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
    num_stopped: int = 0
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
    num_stopped: int = 0


@event("study.completed", topic=EVENTS_STUDIES, producer="hpo")
class StudyCompleted(Payload):
    """Every trial has ended. `best_number` is None when no trial has a value.

    `ended_by` is why no further trial was started. `pareto` are, for several objectives, the
    numbers of the trials that no other one surpasses in all of them.
    """

    study_id: StudyId
    num_completed: int
    num_failed: int
    best_number: int | None = None
    best_job_id: JobId | None = None
    best_value: float | None = None
    best_hyperparameters: dict[str, Scalar] | None = None
    metric: Metric
    finished_at: UtcTime
    ended_by: EndedBy | None = None
    num_stopped: int = 0
    pareto: Annotated[tuple[int, ...], Field(max_length=1000)] = ()
