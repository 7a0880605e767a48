"""Whether a request for a job is accepted: what can never run is refused, with the fix.

In: the parts of the spec that matter here, and what the pools have. Out: a `Refusal`, or None.
The handler checks whether the request was made before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drivetrain_schemas.jobs import FieldError, RejectionReason
from drivetrain_schemas.specs import MAX_SPEC_BYTES
from services.scheduler.core.occupancy import most_slots


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: RejectionReason
    detail: str
    field: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """The fields of a request that decide admission."""

    pool: str
    devices: int
    device_type: str | None
    has_image: bool
    num_spec_bytes: int
    problem: FieldError | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What the platform can run. `capacities`: by pool, its slots of each device type."""

    capacities: Mapping[str, Mapping[str, int]]
    can_run_images: bool = False


def refuse(request: Request, offer: Offer) -> Refusal | None:
    if request.num_spec_bytes > MAX_SPEC_BYTES:
        detail = f"the spec has {request.num_spec_bytes} bytes (at most {MAX_SPEC_BYTES})"
        fix = "put large values into files of the job's code"
        return Refusal(RejectionReason.TOO_LARGE, detail, "spec", fix)
    if (wrong := request.problem) is not None:
        detail = f"{wrong.field}: {wrong.message}"
        return Refusal(RejectionReason.INVALID_SPEC, detail, f"spec.{wrong.field}", wrong.fix)
    if request.has_image and not offer.can_run_images:
        detail = "this platform starts processes on this machine and runs no container images"
        fix = "give code instead of image"
        return Refusal(RejectionReason.UNSUPPORTED, detail, "spec.image", fix)
    if request.pool not in offer.capacities:
        detail = f"there is no pool {request.pool}"
        pools = sorted(offer.capacities)
        fix = f"name one of: {', '.join(pools[:20])}" if pools else "add a node first"
        return Refusal(RejectionReason.NO_SUCH_POOL, detail, "spec.resources.pool", fix)
    most = most_slots(offer.capacities[request.pool], request.device_type)
    if request.devices > most:
        kind = f"{request.device_type} devices" if request.device_type else "devices of one type"
        detail = f"pool {request.pool} has {most} {kind}, the job asks for {request.devices}"
        fix = f"ask for at most {most}" if most else "leave device_type out"
        reason = RejectionReason.MORE_DEVICES_THAN_POOL
        return Refusal(reason, detail, "spec.resources.devices", fix)
    return None
