"""Names and labels of a run's objects, derived from the ids of job, run and pod alone.

A pod of the same name is created once, so its name is what makes `launch` exclusive.
"""

import hashlib
from collections.abc import Mapping

from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.pods import PodSpec

PREFIX = "drivetrain.dev/"
JOB = PREFIX + "job"
ATTEMPT = PREFIX + "attempt"
RUN = PREFIX + "run"
POD = PREFIX + "pod"
FENCE = PREFIX + "fence"
PLATFORM = PREFIX + "platform"
STOP = PREFIX + "stop"  # an annotation: the stop notice as JSON
MANAGED_BY = "app.kubernetes.io/managed-by"


def ours(platform: str) -> str:
    """Selects all pods of this platform."""
    return f"{POD},{PLATFORM}={platform},{MANAGED_BY}=drivetrain"


def platform_of(*places: str) -> str:
    """A label's value from what no two platforms share, and no platform changes."""
    return hashlib.sha256("\0".join(places).encode()).hexdigest()[:16]


def pod_name(pod_id: str) -> str:
    return pod_id.replace("_", "-")


def service_name(job_id: str, attempt: int) -> str:
    """Of the headless Service through which the pods of a run find each other."""
    return run_id_for(job_id, attempt).replace("_", "-")


def host_name(index: int) -> str:
    return f"pod-{index}"


def host_of_first(job_id: str, attempt: int) -> str:
    """The name under which every pod of the run reaches its first pod."""
    return f"{host_name(0)}.{service_name(job_id, attempt)}"


def labels_of(spec: PodSpec) -> Mapping[str, str]:
    return {
        **labels_of_run(spec),
        POD: spec.pod_id,
        FENCE: str(spec.fence),
    }


def labels_of_run(spec: PodSpec) -> Mapping[str, str]:
    return {
        MANAGED_BY: "drivetrain",
        JOB: spec.job_id,
        ATTEMPT: str(spec.attempt),
        RUN: spec.run_id,
    }
