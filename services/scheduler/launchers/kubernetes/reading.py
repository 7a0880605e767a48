"""A Pod object as an observation. Pure.

Proof of the end is a container that has terminated, or a pod that reached its final phase without a
running container; a pod that is gone from the API server is not read here. How it ended is in the
termination message that the shim wrote; without one, in the pod's status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from drivetrain_schemas.pod_ends import ReportedEnd
from drivetrain_schemas.pods import PodExit
from services.scheduler.core.pods import EndKind, EndReason, Sight
from services.scheduler.launchers.kubernetes import names
from services.scheduler.launchers.kubernetes.manifest import CONTAINER, INIT_CONTAINER
from services.scheduler.launchers.kubernetes.starts import REFUSED, reason_of

_SIGNALS = 128
# The command of the container could not be started.
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
# The kubelet's own reasons to end a pod that did nothing wrong.
_TAKEN = frozenset({"Preempting", "Shutdown", "NodeShutdown", "Terminated", "NodeLost"})
# The kubelet has started again and has no record of the container.
_LOST_CONTAINER = "ContainerStatusUnknown"
# In the kubelet's message about a pod that used more than it requested.
_USED_TOO_MUCH = "has larger consumption"


@dataclass(frozen=True, slots=True)
class Reading:
    """`end`: what the shim reported; `is_whole` False: the rest of it is in the object store.

    `reason`: why the cluster ended the pod, or is ending it.
    """

    sight: Sight
    end: PodExit | None = None
    is_whole: bool = True
    reason: EndReason | None = None

    @property
    def is_complete(self) -> bool:
        return self.end is not None and self.is_whole


def read_pod(pod: Mapping[str, Any]) -> Reading:
    status = pod.get("status") or {}
    main = _state(status.get("containerStatuses"), CONTAINER)
    init = _state(status.get("initContainerStatuses"), INIT_CONTAINER)
    if "terminated" in main:
        return _ended(pod, main["terminated"])
    if "terminated" in init and init["terminated"].get("exitCode") != 0:
        return _ended(pod, init["terminated"])
    if "running" in main:
        return Reading(Sight.ALIVE)
    is_final = status.get("phase") in ("Failed", "Succeeded")
    if is_final and "running" not in init:
        return _ended(pod, {})
    return Reading(Sight.CREATED)


def why_disrupted(pod: Mapping[str, Any]) -> EndReason | None:
    """Why others than the platform and the pod itself end this pod."""
    status = pod.get("status") or {}
    word, said = status.get("reason") or "", status.get("message") or ""
    if word == "Evicted":
        kind = EndKind.FAILED if _USED_TOO_MUCH in said else EndKind.DISRUPTED
        return reason_of(kind, f"the node evicted the pod: {said}")
    for condition in status.get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            why = condition.get("message") or condition.get("reason") or "disruption"
            return reason_of(EndKind.DISRUPTED, f"the cluster ended the pod: {why}")
    if word in _TAKEN:
        return reason_of(EndKind.DISRUPTED, f"the node ended the pod ({word}): {said}")
    if "deletionTimestamp" in pod["metadata"] and not has_notice(pod):
        return reason_of(EndKind.DISRUPTED, "the pod was deleted in the cluster")
    return None


def has_notice(pod: Mapping[str, Any]) -> bool:
    """The platform has sent it a stop notice, as it also does before it kills a pod."""
    return names.STOP in (pod["metadata"].get("annotations") or {})


def _state(statuses: Any, name: str) -> Mapping[str, Any]:
    for container in statuses or ():
        if container["name"] == name:
            state: Mapping[str, Any] = container.get("state") or {}
            return state
    return {}


def _ended(pod: Mapping[str, Any], terminated: Mapping[str, Any]) -> Reading:
    reported = _reported(pod, terminated.get("message", ""))
    if reported is not None:
        return Reading(Sight.ENDED, reported.end, reported.is_whole, why_disrupted(pod))
    return Reading(Sight.DEAD, reason=_explained(pod, terminated))


def _reported(pod: Mapping[str, Any], message: str) -> ReportedEnd | None:
    """What the shim wrote about this pod; None for anything else."""
    try:
        reported = ReportedEnd.model_validate_json(message)
    except ValidationError:
        return None
    pod_id = pod["metadata"]["labels"][names.POD]
    return reported if reported.end.pod_id == pod_id else None


def _explained(pod: Mapping[str, Any], terminated: Mapping[str, Any]) -> EndReason | None:
    """The end of a pod whose shim reported nothing; None where the platform ended it."""
    status = pod.get("status") or {}
    word, said = status.get("reason") or "", status.get("message") or ""
    if terminated.get("reason") == "OOMKilled":
        detail = f"the container was killed because it used more than its memory{_limit(pod)}"
        return reason_of(EndKind.FAILED, detail)
    if disruption := why_disrupted(pod):
        return disruption
    if word.startswith(REFUSED):
        return reason_of(EndKind.DISRUPTED, f"the node did not accept the pod ({word}): {said}")
    if terminated.get("reason") == _LOST_CONTAINER:
        return reason_of(EndKind.DISRUPTED, "the node was restarted, or lost the pod's container")
    if not terminated:
        detail = f"the pod ended without a container ({word or 'no reason is given'}): {said}"
        return reason_of(EndKind.FAILED, detail)
    if has_notice(pod):
        return None  # by the platform itself
    return _flaw_of_image(pod, terminated) or reason_of(EndKind.FAILED, _how(terminated))


def _flaw_of_image(pod: Mapping[str, Any], terminated: Mapping[str, Any]) -> EndReason | None:
    image = pod["spec"]["containers"][0].get("image", "")
    message = terminated.get("message", "")
    needs = "an image for jobs needs Python and the package drivetrain"
    if terminated.get("reason") in _NOT_STARTED:
        return reason_of(EndKind.INVALID, f"image {image} cannot run python ({message}): {needs}")
    if "No module named" in message and "drivetrain" in message:
        return reason_of(EndKind.INVALID, f"image {image} has no package drivetrain: {needs}")
    return None


def _how(terminated: Mapping[str, Any]) -> str:
    code = terminated.get("exitCode", 0)
    if code > _SIGNALS:
        how = f"was killed by signal {code - _SIGNALS}"
    else:
        how = f"ended with exit code {code}"
    last = (terminated.get("message") or "").strip()[-500:]
    return f"the container {how} before it could say why" + (f": {last}" if last else "")


def _limit(pod: Mapping[str, Any]) -> str:
    resources = pod["spec"]["containers"][0].get("resources") or {}
    limit = (resources.get("limits") or {}).get("memory")
    return "" if limit is None else f" limit of {limit} bytes (resources.memory_bytes)"
