"""Pods that have not started: why they wait, and for how long that may go on. Pure.

Some reasons pass (a registry that is busy, devices that another pod is about to give back); after
their time the pod is deleted, and its run ends with the reason in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain_schemas.text import storable
from services.scheduler.core.pods import EndKind, EndReason

# In the message of a registry or container runtime about an image that does not exist.
_NO_SUCH_IMAGE = ("not found", "manifest unknown", "does not exist", "invalid reference format")
_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
_BAD_IMAGE_REASONS = frozenset({"InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_CONTAINER_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})
_IMAGE_SECONDS = 120.0
_CONTAINER_SECONDS = 60.0
_UNSCHEDULABLE_SECONDS = 60.0
MAX_DETAIL = 1000


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a pod cannot start, and how it ends if that is still so after `patience_seconds`."""

    word: str
    patience_seconds: float
    reason: EndReason


def why_stuck(pod: Mapping[str, Any]) -> Stuck | None:
    """None for a pod that makes progress, as far as is known."""
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting and (found := _of_container(waiting, container.get("image", ""))):
                return found
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            why = condition.get("message", "")
            detail = f"the cluster's scheduler cannot place the pod on its node: {why}"
            return _stuck("Unschedulable", _UNSCHEDULABLE_SECONDS, EndKind.DISRUPTED, detail)
    return None


def reason_of(kind: EndKind, detail: str) -> EndReason:
    """`detail` may be what a program of the pod printed."""
    return EndReason(kind, storable(detail[:MAX_DETAIL]))


def _of_container(waiting: Mapping[str, Any], image: str) -> Stuck | None:
    word = waiting.get("reason", "")
    message = waiting.get("message") or word
    if word in _BAD_IMAGE_REASONS:
        return _stuck(word, 0.0, EndKind.INVALID, f"image {image}: {message}")
    if word in _IMAGE_REASONS:
        is_missing = any(words in message.lower() for words in _NO_SUCH_IMAGE)
        kind = EndKind.INVALID if is_missing else EndKind.FAILED
        detail = f"image {image} cannot be pulled: {message}"
        # One word for both, because the kubelet alternates between them.
        return _stuck("ImagePull", _IMAGE_SECONDS, kind, detail)
    if word in _CONTAINER_REASONS:
        detail = f"the container cannot be created: {message}"
        return _stuck(word, _CONTAINER_SECONDS, EndKind.FAILED, detail)
    return None


def _stuck(word: str, seconds: float, kind: EndKind, detail: str) -> Stuck:
    return Stuck(word, seconds, reason_of(kind, detail))
