"""Jobs: what is asked for, and what the scheduler decides about the whole of it.

`JobSpec` is the immutable specification that people and other systems write. A job keeps one spec
and one final result over all its runs.
"""

import shlex
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator, model_validator

from drivetrain_schemas.base import Payload, Strict, UtcTime, Value, event
from drivetrain_schemas.ids import JobId, RequestId, StudyId
from drivetrain_schemas.topics import COMMANDS_JOBS, EVENTS_JOBS
from drivetrain_schemas.units import Attempt, Seconds, Step

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}$", strict=True)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}$")]
MetricName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_./-]{0,127}$")]
Scalar = (
    Annotated[bool, Field(strict=True)]
    | Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
    | Annotated[float, Field(strict=True)]
    | Annotated[str, StringConstraints(max_length=1024, strict=True)]
)
Count = Annotated[int, Field(strict=True)]


class Goal(StrEnum):
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PREEMPTING = "preempting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (self.SUCCEEDED, self.FAILED, self.CANCELLED, self.STOPPED)


class Code(Strict):
    """A gzipped tar of the job's files in the object store, found by its content."""

    uri: Annotated[str, StringConstraints(max_length=1024, pattern=r"^(s3|file)://[!-~]+$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Metric(Strict):
    """The value a job is judged by: `keep_best` and studies rank by it."""

    name: MetricName
    goal: Goal


class Resources(Strict):
    """`devices` ranks, one slot each, all of one pool (and one device type where one is named)."""

    pool: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")] = "default"
    devices: Annotated[Count, Field(ge=1, le=4096)] = 1
    device_type: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")] | None = (
        None
    )
    memory_bytes: Annotated[Count, Field(ge=1, le=2**50)] | None = None


class CheckpointPolicy(Strict):
    """When to save, and what to keep while the run is alive."""

    every_steps: Annotated[Count, Field(ge=1, le=2**40)] | None = None
    every_minutes: Annotated[float, Field(gt=0, le=10_080)] | None = None
    keep_last: Annotated[Count, Field(ge=2, le=1000)] = 3
    keep_best: Annotated[Count, Field(ge=0, le=1000)] = 1


class Retries(Strict):
    """A failed run is tried again `limit` times, each wait twice the last one."""

    limit: Annotated[Count, Field(ge=0, le=100)] = 5
    backoff_seconds: Annotated[float, Field(ge=0, le=3600)] = 1.0
    backoff_limit_seconds: Annotated[float, Field(ge=0, le=86_400)] = 300.0


class JobSpec(Strict):
    """What to run, on what, and how it is judged. Immutable once accepted."""

    name: Name
    command: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=4096, strict=True)], ...],
        Field(min_length=1, max_length=256),
    ]
    code: Code | None = None
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    environment: Annotated[
        dict[VariableName, Annotated[str, StringConstraints(max_length=4096)]],
        Field(max_length=128),
    ] = {}
    hyperparameters: Annotated[dict[VariableName, Scalar], Field(max_length=128)] = {}
    data: Annotated[str, StringConstraints(max_length=1024, pattern=r"^[a-z0-9+]+://[!-~]+$")] | (
        None
    ) = None
    max_steps: Annotated[Count, Field(ge=1, le=2**40)] | None = None
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    metric: Metric | None = None
    resources: Resources = Resources()
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    retries: Retries = Retries()
    priority: Annotated[Count, Field(ge=-1000, le=1000)] = 0
    tags: Annotated[tuple[Tag, ...], Field(max_length=32)] = ()

    @field_validator("command", mode="before")
    @classmethod
    def _split_like_a_shell(cls, command: Any) -> Any:
        if isinstance(command, str):
            try:
                return tuple(shlex.split(command))
            except ValueError as error:
                raise ValueError(f"cannot be split like a shell line: {error}") from error
        return command

    @field_validator("environment")
    @classmethod
    def _platform_names_are_reserved(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if name.startswith("DRIVETRAIN_"):
                raise ValueError(f"{name}: names that begin with DRIVETRAIN_ are the platform's")
        return environment

    @model_validator(mode="after")
    def _something_to_run(self) -> "JobSpec":
        if self.code is not None and self.image is not None:
            raise ValueError("give code or image, not both")
        return self


class TrialOf(Strict):
    """The trial that a job carries out."""

    study_id: StudyId
    number: Annotated[Count, Field(ge=0, le=1_000_000)]


@event("job.submit", topic=COMMANDS_JOBS, producer="any")
class JobSubmit(Payload):
    """Run this job. The same request_id again is the same job.

    `job_id` follows from tenant and request_id and may be left out by other systems.
    """

    request_id: RequestId
    spec: JobSpec
    trial: TrialOf | None = None
    job_id: JobId | None = None


@event("job.cancel", topic=COMMANDS_JOBS, producer="any")
class JobCancel(Payload):
    """The owner wants the job ended."""

    job_id: JobId
    reason: Annotated[str, StringConstraints(max_length=512)] = ""


class FieldError(Value):
    """What is wrong with one field, and how to mend it."""

    field: str
    message: str
    fix: str = ""


class RejectionReason(StrEnum):
    INVALID_SPEC = "invalid_spec"
    ID_CONFLICT = "id_conflict"
    NO_SUCH_POOL = "no_such_pool"
    MORE_DEVICES_THAN_POOL = "more_devices_than_pool"
    UNSUPPORTED = "unsupported"
    NO_SUCH_JOB = "no_such_job"
    ALREADY_FINISHED = "already_finished"
    TOO_LARGE = "too_large"


@event("job_request.rejected", topic=EVENTS_JOBS, producer="scheduler")
class JobRequestRejected(Payload):
    """A command about a job was refused (`command_event_id`); no job was changed."""

    job_id: JobId
    request_id: str | None = None
    command_event_id: str
    reason: RejectionReason
    detail: str
    errors: tuple[FieldError, ...] = ()


@event("job.queued", topic=EVENTS_JOBS, producer="scheduler")
class JobQueued(Payload):
    """A request was accepted: the job waits in its pool's queue."""

    job_id: JobId
    request_id: RequestId
    spec: JobSpec
    trial: TrialOf | None = None
    queued_at: UtcTime


class WaitingReason(StrEnum):
    """The closed list of reasons for which a job waits."""

    NO_FREE_DEVICES = "no_free_devices"
    BEHIND_HIGHER_PRIORITY = "behind_higher_priority"
    BEHIND_EARLIER_SUBMISSION = "behind_earlier_submission"
    GANG_INCOMPLETE = "gang_incomplete"
    BACKING_OFF = "backing_off"
    POOL_WITHOUT_NODES = "pool_without_nodes"


class Holder(Value):
    """A job that holds slots which the waiting job could use."""

    job_id: JobId
    num_slots: int


@event("job.waiting", topic=EVENTS_JOBS, producer="scheduler")
class JobWaiting(Payload):
    """Why the job waits; emitted when the reason or the queue position changes."""

    job_id: JobId
    reason: WaitingReason
    detail: str
    queue_position: Annotated[int, Field(ge=1)]
    holders: tuple[Holder, ...] = ()


@event("job.retrying", topic=EVENTS_JOBS, producer="scheduler")
class JobRetrying(Payload):
    """A run ended without success and another one follows, not before `not_before_at`."""

    job_id: JobId
    next_attempt: Attempt
    backoff_seconds: Seconds
    not_before_at: UtcTime
    retries_left: int


@event("job.cancelling", topic=EVENTS_JOBS, producer="scheduler")
class JobCancelling(Payload):
    """The owner cancelled the job; its run, if one lives, is being stopped."""

    job_id: JobId
    reason: str


class BestValue(Value):
    """The best value of the job's metric so far, and the step it was logged at."""

    name: str
    goal: Goal
    value: float
    step: Step


class Result(Value):
    """What `result.json` of the last run says: the only thing a search ranks by."""

    step: Step
    metrics: dict[str, float] = {}
    best: BestValue | None = None


@event("job.succeeded", topic=EVENTS_JOBS, producer="scheduler")
class JobSucceeded(Payload):
    """Training is complete."""

    job_id: JobId
    attempts: Attempt
    result: Result | None = None
    finished_at: UtcTime
    trial: TrialOf | None = None


@event("job.failed", topic=EVENTS_JOBS, producer="scheduler")
class JobFailed(Payload):
    """No retry is left, or none can help."""

    job_id: JobId
    attempts: int
    detail: str
    finished_at: UtcTime
    trial: TrialOf | None = None


@event("job.cancelled", topic=EVENTS_JOBS, producer="scheduler")
class JobCancelled(Payload):
    """The owner's cancel took effect."""

    job_id: JobId
    reason: str
    finished_at: UtcTime
    trial: TrialOf | None = None
