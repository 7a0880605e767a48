"""Reports of pods: heartbeats with progress. Their times never decide order, lease or price."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from drivetrain_schemas.base import Payload, UtcTime, event
from drivetrain_schemas.ids import JobId, PodId, RunId, TenantId
from drivetrain_schemas.text import AS_PRINTED, storable
from drivetrain_schemas.topics import REPORTS
from drivetrain_schemas.units import Attempt, Fence, Seconds, Step

_WORD = StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")
# A word for the kind of misuse, such as "no_resume": for other programs; people read the detail.
WarningKind = Annotated[str, _WORD]
BEGINS_WITH = "begins_with"  # no misuse: the files that a further attempt begins with
ALERT = "alert"  # no misuse: the program asks for attention, and an alert is raised
PhaseName = Annotated[str, _WORD]
MAX_WARNING_CHARACTERS = 602  # of an alert: its title, a colon and its text
WarningDetail = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_WARNING_CHARACTERS), AS_PRINTED
]


def alert_detail(title: str, text: str = "") -> str:
    """What an alert of a program says, within its bounds."""
    parts = storable(title.strip()[:100]), storable(text.strip()[:500])
    return ": ".join(filter(None, parts)) or ALERT


@event("pod.heartbeat", topic=REPORTS, producer="pod")
class PodHeartbeat(Payload):
    """The pod is alive. `step`: the highest step of rank 0, or of any rank of this pod.

    `doing`: what the program says that it does between two steps, such as an evaluation.
    `quiet_seconds`: since that changed, or since there was output meanwhile.
    Dropped samples did not fit the pod's buffer; refused ones were not numbers, or misnamed.
    """

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    pod_id: PodId
    phase: Literal["starting", "training", "checkpointing", "stopping", "ending"]
    doing: PhaseName | None = None
    quiet_seconds: Seconds | None = None
    step: Step | None = None
    max_steps: Step | None = None
    epoch: int | None = None
    num_dropped_samples: Annotated[int, Field(ge=0)] = 0
    num_refused_samples: Annotated[int, Field(ge=0)] = 0
    num_dropped_log_bytes: Annotated[int, Field(ge=0)] = 0
    sent_at: UtcTime


@event("pod.warned", topic=REPORTS, producer="pod")
class PodWarned(Payload):
    """The program does something in vain, or other than it seems; or, no misuse, `begins_with`,
    or `alert`: it asks for attention."""

    tenant_id: TenantId
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    pod_id: PodId
    warning: WarningKind
    detail: WarningDetail


@event("scheduler.beacon", topic=REPORTS, producer="scheduler")
class SchedulerBeacon(Payload):
    """Sent by the scheduler to itself: missing heartbeats count only while it is received.

    `run_id` is the key; there is one key for each partition, so the beacon reaches all of them.
    """

    run_id: str
    number: int
