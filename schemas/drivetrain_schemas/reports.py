"""Reports of pods: heartbeats with progress. Their times never decide order, lease or price."""

from typing import Annotated, Literal

from pydantic import Field

from drivetrain_schemas.base import Payload, UtcTime, event
from drivetrain_schemas.ids import JobId, PodId, RunId, TenantId
from drivetrain_schemas.topics import REPORTS
from drivetrain_schemas.units import Attempt, Fence, Step


@event("pod.heartbeat", topic=REPORTS, producer="pod")
class PodHeartbeat(Payload):
    """The pod is alive. `step`: the highest step of rank 0, or of any rank of this pod.

    Dropped samples did not fit the pod's buffer; refused ones were not numbers, or misnamed.
    """

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    pod_id: PodId
    phase: Literal["starting", "training", "checkpointing", "stopping", "ending"]
    step: Step | None = None
    max_steps: Step | None = None
    epoch: int | None = None
    num_dropped_samples: Annotated[int, Field(ge=0)] = 0
    num_refused_samples: Annotated[int, Field(ge=0)] = 0
    num_dropped_log_bytes: Annotated[int, Field(ge=0)] = 0
    sent_at: UtcTime


@event("scheduler.beacon", topic=REPORTS, producer="scheduler")
class SchedulerBeacon(Payload):
    """Sent by the scheduler to itself: missing heartbeats count only while it is received.

    `run_id` is the key; there is one key for each partition, so the beacon reaches all of them.
    """

    run_id: str
    number: int
