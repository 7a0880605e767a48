"""Allocations: a run's slots from grant to release. Never edited, only released.

The owner pays from `granted_at` to `paid_ends_at`; only these times and `released_at` are used for
prices. `spot_nodes` are those of the slots' nodes that were spot capacity at the grant, which may
have prices of its own.
"""

from typing import Annotated

from pydantic import Field

from drivetrain_schemas.base import Payload, UtcTime, Value, event
from drivetrain_schemas.ids import AllocationId, JobId, NodeId, RunId, TenantId
from drivetrain_schemas.topics import EVENTS_JOBS
from drivetrain_schemas.units import MAX_DEVICES, Attempt, Fence


class SlotRef(Value):
    """One slot: its node and its index on the node."""

    node_id: NodeId
    slot: Annotated[int, Field(ge=0, le=99_999)]


class _OfAllocation(Payload):
    job_id: JobId
    run_id: RunId
    attempt: Attempt
    fence: Fence
    allocation_id: AllocationId
    tenant_id: TenantId
    pool: str
    device_type: str
    slots: Annotated[tuple[SlotRef, ...], Field(min_length=1, max_length=MAX_DEVICES)]
    granted_at: UtcTime
    spot_nodes: Annotated[tuple[NodeId, ...], Field(max_length=1024)] = ()


@event("allocation.granted", topic=EVENTS_JOBS, producer="scheduler")
class AllocationGranted(_OfAllocation):
    """The run holds these slots from `granted_at`."""


@event("allocation.released", topic=EVENTS_JOBS, producer="scheduler")
class AllocationReleased(_OfAllocation):
    """The slots are free again; the pods were proven gone before `released_at`.

    The owner pays until `paid_ends_at`, the end of the last pod; after it, the platform pays.
    """

    released_at: UtcTime
    paid_ends_at: UtcTime
