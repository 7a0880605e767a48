"""Whether a request for a job is accepted: what cannot ever run is refused at once, with the fix.

In: the parts of the spec that matter here, and the nodes. Out: a `Refusal`, or None. Whether the
request was made before is the handler's question, not this one's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain_schemas.jobs import RejectionReason
from services.scheduler.core.fit import capacity
from services.scheduler.core.model import Node, QueuedJob

# A rank gets its spec in one environment variable, and Linux takes 128 KiB for one.
MAX_SPEC_BYTES = 96 * 1024


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: RejectionReason
    detail: str
    field: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a job: what of it decides admission."""

    job: QueuedJob
    has_image: bool
    num_spec_bytes: int


def refuse(request: Request, nodes: Sequence[Node], *, can_run_images: bool) -> Refusal | None:
    job = request.job
    if request.num_spec_bytes > MAX_SPEC_BYTES:
        detail = f"the spec has {request.num_spec_bytes} bytes (at most {MAX_SPEC_BYTES})"
        fix = "put large values into files of the job's code"
        return Refusal(RejectionReason.TOO_LARGE, detail, "spec", fix)
    if request.has_image and not can_run_images:
        detail = "this platform starts processes on this machine and runs no container images"
        fix = "give code instead of image"
        return Refusal(RejectionReason.UNSUPPORTED, detail, "spec.image", fix)
    pools = sorted({node.pool for node in nodes if node.is_schedulable})
    if job.pool not in pools:
        detail = f"there is no pool {job.pool}"
        fix = f"name one of: {', '.join(pools[:20])}" if pools else "add a node first"
        return Refusal(RejectionReason.NO_SUCH_POOL, detail, "spec.resources.pool", fix)
    most = capacity(job, nodes)
    if job.devices > most:
        kind = f"{job.device_type} devices" if job.device_type else "devices of one type"
        detail = f"pool {job.pool} has {most} {kind}, {job.devices} are asked for"
        fix = f"ask for at most {most}" if most else "leave device_type out"
        reason = RejectionReason.MORE_DEVICES_THAN_POOL
        return Refusal(reason, detail, "spec.resources.devices", fix)
    return None
