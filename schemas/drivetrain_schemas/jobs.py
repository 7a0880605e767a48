"""Jobs: requests, and what the scheduler decides about a job as a whole.

A job has one spec (`specs.JobSpec`, exported here as well) and one final result over all its runs.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from drivetrain_schemas.base import Payload, UtcTime, Value, event
from drivetrain_schemas.ids import JobId, RequestId, job_id_for
from drivetrain_schemas.specs import (
    CheckpointPolicy,
    Code,
    Count,
    Goal,
    JobSpec,
    LastValues,
    Metric,
    MetricName,
    Name,
    Real,
    Resources,
    Retries,
    Scalar,
    Tag,
    TrialOf,
    VariableName,
)
from drivetrain_schemas.text import free_text
from drivetrain_schemas.topics import COMMANDS_JOBS, EVENTS_JOBS
from drivetrain_schemas.units import Attempt, Ordinal, Seconds, Step

__all__ = [
    "BestValue",
    "CheckpointPolicy",
    "Code",
    "Count",
    "FieldError",
    "Goal",
    "Holder",
    "JobCancel",
    "JobCancelled",
    "JobCancelling",
    "JobFailed",
    "JobPause",
    "JobPaused",
    "JobPausing",
    "JobQueued",
    "JobRequestRejected",
    "JobResume",
    "JobResumed",
    "JobRetrying",
    "JobSpec",
    "JobState",
    "JobStop",
    "JobStopped",
    "JobStopping",
    "JobSubmit",
    "JobSucceeded",
    "JobWaiting",
    "Metric",
    "MetricName",
    "Name",
    "Real",
    "RejectionReason",
    "Resources",
    "Result",
    "Retries",
    "Scalar",
    "Tag",
    "TrialOf",
    "UsedSeed",
    "VariableName",
    "WaitingReason",
]


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


@event("job.submit", topic=COMMANDS_JOBS, producer="any")
class JobSubmit(Payload):
    """Run this job. The same request_id again is the same job.

    `job_id` is derived from tenant and request_id; other systems may leave it out. A `job_id` that
    is not derived from them is refused.
    """

    request_id: RequestId
    spec: JobSpec
    trial: TrialOf | None = None
    job_id: JobId | None = None

    def key_within(self, tenant_id: str) -> str:
        return job_id_for(tenant_id, self.request_id)


@event("job.cancel", topic=COMMANDS_JOBS, producer="any")
class JobCancel(Payload):
    """End this job."""

    job_id: JobId
    reason: Annotated[str, free_text(512)] = ""


@event("job.stop", topic=COMMANDS_JOBS, producer="any")
class JobStop(Payload):
    """End this job early, as a search does with a poor trial. It has not failed: it is `stopped`.

    With `checkpoint` its run saves a last one; without it, the run ends without saving anything.
    """

    job_id: JobId
    reason: Annotated[str, free_text(512)] = ""
    checkpoint: Annotated[bool, Field(strict=True)] = True


@event("job.pause", topic=COMMANDS_JOBS, producer="any")
class JobPause(Payload):
    """Give up this job's slots until `job.resume`. Its run saves a checkpoint first."""

    job_id: JobId
    reason: Annotated[str, free_text(512)] = ""


@event("job.resume", topic=COMMANDS_JOBS, producer="any")
class JobResume(Payload):
    """Return a paused job to its queue; its next run continues from its newest checkpoint."""

    job_id: JobId


class FieldError(Value):
    """What is wrong with one field, and how to fix it."""

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
    """A request was accepted: the job is in its pool's queue."""

    job_id: JobId
    request_id: RequestId
    spec: JobSpec
    trial: TrialOf | None = None
    queued_at: UtcTime


class WaitingReason(StrEnum):
    """The complete list of reasons why a job waits."""

    NO_FREE_DEVICES = "no_free_devices"
    BEHIND_HIGHER_PRIORITY = "behind_higher_priority"
    BEHIND_EARLIER_SUBMISSION = "behind_earlier_submission"
    GANG_INCOMPLETE = "gang_incomplete"
    NO_ROOM = "no_room"
    BACKING_OFF = "backing_off"
    POOL_WITHOUT_NODES = "pool_without_nodes"
    BUDGET_REACHED = "budget_reached"


class Holder(Value):
    """A job that holds slots which the waiting job could use. `detail`: why they stay held, where
    its own end would not release them."""

    job_id: JobId
    num_slots: int
    detail: Annotated[str, Field(max_length=1000)] | None = None


@event("job.waiting", topic=EVENTS_JOBS, producer="scheduler")
class JobWaiting(Payload):
    """Why the job waits; emitted when the reason changes, with the position at that time.

    `not_before_at`: when its next run starts at the earliest, while it backs off.
    """

    job_id: JobId
    reason: WaitingReason
    detail: str
    queue_position: Annotated[int, Field(ge=1)]
    holders: tuple[Holder, ...] = ()
    not_before_at: UtcTime | None = None


@event("job.retrying", topic=EVENTS_JOBS, producer="scheduler")
class JobRetrying(Payload):
    """A run ended without success; another one starts, not before `not_before_at`.

    `detail`: what became of the last run.
    """

    job_id: JobId
    next_attempt: Attempt
    backoff_seconds: Seconds
    not_before_at: UtcTime
    retries_left: int
    detail: str | None = None


@event("job.cancelling", topic=EVENTS_JOBS, producer="scheduler")
class JobCancelling(Payload):
    """The owner cancelled the job; its run, if there is one, is being stopped."""

    job_id: JobId
    reason: str


class BestValue(Value):
    """The best value of the job's metric so far, and the step it was logged at."""

    name: MetricName
    goal: Goal
    value: float
    step: Step


class UsedSeed(Value):
    """The seed that decided the order of the data, and every random number not of `by_script`.

    `by_script`: the generators that the script seeded itself, which kept its numbers.
    """

    number: Ordinal
    by_script: Annotated[tuple[Literal["python", "numpy", "torch"], ...], Field(max_length=3)] = ()


class Result(Value):
    """The content of `result.json` of the last run; searches rank by nothing else.

    JSON has no NaN and no infinity, so a metric whose last value is one of them is left out. `seed`
    is unknown for programs that do not use the package.
    """

    step: Step
    metrics: LastValues = {}
    best: BestValue | None = None
    seed: UsedSeed | None = None


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
    """No retry is left, or a retry cannot help."""

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


@event("job.stopping", topic=EVENTS_JOBS, producer="scheduler")
class JobStopping(Payload):
    """A stop was accepted; the job's run, if there is one, is being stopped."""

    job_id: JobId
    reason: str


@event("job.stopped", topic=EVENTS_JOBS, producer="scheduler")
class JobStopped(Payload):
    """The job was ended early, by a search or by its owner. It is not tried again.

    `result` is what its last run had reached, where it told so.
    """

    job_id: JobId
    reason: str
    result: Result | None = None
    finished_at: UtcTime
    trial: TrialOf | None = None


@event("job.pausing", topic=EVENTS_JOBS, producer="scheduler")
class JobPausing(Payload):
    """A pause was accepted; the job's run, if there is one, is being stopped with a checkpoint."""

    job_id: JobId
    reason: str


@event("job.paused", topic=EVENTS_JOBS, producer="scheduler")
class JobPaused(Payload):
    """The job holds no slots and waits for `job.resume`.

    `attempt` is its last run, 0 where it never ran; `step` is where that run stopped, where it told
    so.
    """

    job_id: JobId
    reason: str
    attempt: Annotated[int, Field(ge=0)]
    step: Step | None = None
    paused_at: UtcTime
    trial: TrialOf | None = None


@event("job.resumed", topic=EVENTS_JOBS, producer="scheduler")
class JobResumed(Payload):
    """The pause is over: the job is queued again, at the place of its first submission.

    Without `queued_at` its run was still being paused. That run ends first; then `job.retrying`
    follows.
    """

    job_id: JobId
    queued_at: UtcTime | None = None
    trial: TrialOf | None = None
