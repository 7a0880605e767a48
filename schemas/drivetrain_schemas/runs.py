"""Runs: each is one attempt of a job, from the grant of its slots to its outcome."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from drivetrain_schemas.base import Payload, UtcTime, event
from drivetrain_schemas.ids import AllocationId, JobId, NodeId, RunId
from drivetrain_schemas.jobs import Result
from drivetrain_schemas.text import AS_PRINTED
from drivetrain_schemas.topics import EVENTS_JOBS
from drivetrain_schemas.units import Attempt, Fence


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    SUSPECT = "suspect"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        return self in (
            self.SUCCEEDED,
            self.FAILED,
            self.LOST,
            self.CANCELLED,
            self.INTERRUPTED,
            self.STOPPED,
        )


class WaitCause(StrEnum):
    """Why a pod does not run yet: the complete list."""

    REFUSED = "refused"
    NO_ANSWER = "no_answer"
    GATED = "gated"
    NOT_SCHEDULED = "not_scheduled"
    PULL_FAILED = "pull_failed"
    NOT_CREATED = "not_created"
    PULLING = "pulling"
    INITIALISING = "initialising"


class _OfRun(Payload):
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence


@event("run.starting", topic=EVENTS_JOBS, producer="scheduler")
class RunStarting(_OfRun):
    """Slots are granted and the pods of the gang are being started."""

    allocation_id: AllocationId
    num_pods: Annotated[int, Field(ge=1)]


@event("run.waiting", topic=EVENTS_JOBS, producer="scheduler")
class RunWaiting(_OfRun):
    """Why pods of a starting run do not run yet; emitted when that changes.

    `by`: who refuses or holds back, such as a quota or a webhook by name; `detail`: a sentence with
    the words of what runs the pods. Without a `cause`: that is over, and the pods are starting.
    """

    cause: WaitCause | None = None
    by: Annotated[str, StringConstraints(max_length=300), AS_PRINTED] = ""
    detail: Annotated[str, StringConstraints(max_length=1000), AS_PRINTED] = ""


@event("run.started", topic=EVENTS_JOBS, producer="scheduler")
class RunStarted(_OfRun):
    """Every pod of the gang was seen alive."""

    started_at: UtcTime


@event("run.suspected", topic=EVENTS_JOBS, producer="scheduler")
class RunSuspected(_OfRun):
    """The run's lease lapsed: no heartbeats arrive. Nothing is killed for that."""

    last_heard_at: UtcTime | None = None


@event("run.heard", topic=EVENTS_JOBS, producer="scheduler")
class RunHeard(_OfRun):
    """Heartbeats of a suspected run arrive again."""


@event("run.unreachable", topic=EVENTS_JOBS, producer="scheduler")
class RunUnreachable(_OfRun):
    """Nodes of the run do not answer, so nothing is known of its pods there. Its slots stay held
    until they are proven gone. With no `node_ids`: all answer again."""

    node_ids: Annotated[tuple[NodeId, ...], Field(max_length=1024)]
    detail: Annotated[str, StringConstraints(max_length=1000)] = ""


@event("run.succeeded", topic=EVENTS_JOBS, producer="scheduler")
class RunSucceeded(_OfRun):
    """All ranks ended with code 0."""

    result: Result | None = None
    ended_at: UtcTime


@event("run.failed", topic=EVENTS_JOBS, producer="scheduler")
class RunFailed(_OfRun):
    """A rank ended with another code or by a signal; `last_log` is the end of its output.

    `detail` is the exception, the signal with the last frame, or whatever else tells the cause.
    """

    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    last_log: Annotated[str, StringConstraints(max_length=8192), AS_PRINTED]
    detail: Annotated[str, StringConstraints(max_length=1000), AS_PRINTED] | None = None
    ended_at: UtcTime


@event("run.lost", topic=EVENTS_JOBS, producer="scheduler")
class RunLost(_OfRun):
    """A pod's shim died without `exit.json`; its processes were killed and confirmed gone."""

    detail: str
    ended_at: UtcTime


@event("run.cancelled", topic=EVENTS_JOBS, producer="scheduler")
class RunCancelled(_OfRun):
    """Stopped because its job was cancelled."""

    ended_at: UtcTime


@event("run.stopped", topic=EVENTS_JOBS, producer="scheduler")
class RunStopped(_OfRun):
    """Ended because its job was stopped early; `job.stopped` follows."""

    ended_at: UtcTime


@event("run.interrupted", topic=EVENTS_JOBS, producer="scheduler")
class RunInterrupted(_OfRun):
    """Stopped to be resumed: at a step boundary with a checkpoint (exit code 75), or by what runs
    the pods, as `detail` then says: an eviction, a node that is gone."""

    detail: Annotated[str, StringConstraints(max_length=1000), AS_PRINTED] | None = None
    ended_at: UtcTime
