"""Pods that have not started: what they wait for, and for how long that may go on. Pure.

Some reasons pass (a registry that is busy, devices that another pod is about to give back); after
their time the pod is deleted, and its run ends with the reason in words.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain_schemas.runs import WaitCause
from drivetrain_schemas.text import storable
from services.scheduler.core.pods import EndKind, EndReason
from services.scheduler.core.waits import Wait, wait_of
from services.scheduler.launchers.kubernetes.manifest import CONTAINER

# In the message of a registry or container runtime about an image that does not exist.
_NO_SUCH_IMAGE = ("not found", "manifest unknown", "does not exist", "invalid reference format")
_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
_BAD_IMAGE_REASONS = frozenset({"InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_CONTAINER_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_IMAGE_SECONDS = 120.0
_CONTAINER_SECONDS = 60.0
# Pods of jobs go to one node, so nothing but a moment is to be gained by waiting for it, unless
# the cluster is ending others there for it.
_UNSCHEDULABLE_SECONDS = 10.0
_PREEMPTING_SECONDS = 60.0
# The kubelet refused the pod: nothing was free after all, or a device was not healthy.
REFUSED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "Topology")
# Nothing is wrong for so long while nobody says anything.
_SILENT_SECONDS = 3.0
MAX_DETAIL = 1000


@dataclass(frozen=True, slots=True)
class Stuck:
    """What a pod waits for, and how it ends if that is still so after `patience_seconds`.

    A pod that starts as usual waits for less than `silent_seconds`: until then it is not told.
    """

    wait: Wait
    patience_seconds: float = math.inf
    reason: EndReason | None = None
    silent_seconds: float = 0.0

    def is_like(self, other: "Stuck") -> bool:
        """The same is the matter, in whatever words."""
        now = (other.wait.cause, other.patience_seconds)
        return (self.wait.cause, self.patience_seconds) == now


def why_stuck(pod: Mapping[str, Any]) -> Stuck | None:
    """None for a pod whose container runs, or has ended."""
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting and (found := _of_container(waiting, container.get("image", ""))):
                return found
    why = unscheduled(pod)
    if why is not None:
        is_preempting = bool(status.get("nominatedNodeName"))
        seconds = _PREEMPTING_SECONDS if is_preempting else _UNSCHEDULABLE_SECONDS
        detail = f"the cluster's scheduler cannot place the pod on its node: {why}"
        cause, by = WaitCause.NOT_SCHEDULED, _scheduler_of(pod)
        return _stuck(cause, seconds, EndKind.DISRUPTED, detail, by)
    return _of_order(pod)


def unscheduled(pod: Mapping[str, Any]) -> str | None:
    """Why the cluster's scheduler found no place for it, in its words; None where it did not say
    so."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return condition.get("message") or "Unschedulable"
    return None


def _of_order(pod: Mapping[str, Any]) -> Stuck | None:
    """What comes next for a pod of which nothing bad is said."""
    spec, status = pod["spec"], pod.get("status") or {}
    if gates := ", ".join(gate["name"] for gate in spec.get("schedulingGates") or ()):
        detail = f"the pod is held back by scheduling gates: {gates}"
        return Stuck(wait_of(WaitCause.GATED, gates, detail))
    node, by = spec.get("nodeName"), _scheduler_of(pod)
    if not node:
        detail = f"the cluster's scheduler ({by}) has not answered yet"
        return _silent(WaitCause.NOT_SCHEDULED, by, detail)
    states = {
        container["name"]: container.get("state") or {}
        for key in ("initContainerStatuses", "containerStatuses")
        for container in status.get(key) or ()
    }
    if "running" in states.get(CONTAINER, {}) or "terminated" in states.get(CONTAINER, {}):
        return None
    if any("running" in state for state in states.values()):
        detail = f"the pod's code is being laid out on node {node}"
        return _silent(WaitCause.INITIALISING, node, detail)
    detail = f"node {node} pulls the image {spec['containers'][0]['image']}, or mounts volumes"
    return _silent(WaitCause.PULLING, node, detail)


def _silent(cause: WaitCause, by: str, detail: str) -> Stuck:
    return Stuck(wait_of(cause, by, detail), silent_seconds=_SILENT_SECONDS)


def _scheduler_of(pod: Mapping[str, Any]) -> str:
    return pod["spec"].get("schedulerName") or "default-scheduler"


def reason_of(kind: EndKind, detail: str) -> EndReason:
    """`detail` may be what a program of the pod printed."""
    return EndReason(kind, storable(detail[:MAX_DETAIL]))


def _of_container(waiting: Mapping[str, Any], image: str) -> Stuck | None:
    word = waiting.get("reason", "")
    message = waiting.get("message") or word
    if word in _BAD_IMAGE_REASONS:
        detail = f"image {image}: {message}"
        return _stuck(WaitCause.PULL_FAILED, 0.0, EndKind.INVALID, detail, image)
    if word in _IMAGE_REASONS:
        is_missing = any(words in message.lower() for words in _NO_SUCH_IMAGE)
        kind = EndKind.INVALID if is_missing else EndKind.FAILED
        detail = f"image {image} cannot be pulled: {message}"
        # One cause for both words, because the kubelet alternates between them.
        return _stuck(WaitCause.PULL_FAILED, _IMAGE_SECONDS, kind, detail, image)
    if word in _CONTAINER_REASONS:
        detail = f"the container cannot be created: {message}"
        return _stuck(WaitCause.NOT_CREATED, _CONTAINER_SECONDS, EndKind.FAILED, detail, word)
    return None


def _stuck(cause: WaitCause, seconds: float, kind: EndKind, detail: str, by: str) -> Stuck:
    return Stuck(wait_of(cause, by, detail), seconds, reason_of(kind, detail))
