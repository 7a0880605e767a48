"""Where a pod of a job did not fit although there seemed to be room: the next one goes elsewhere.

What tells so is the cluster's scheduler, which finds no place for a pod on the node that it is
for, or the kubelet, which refuses it. It is kept in memory, longer each time in a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from drivetrain_schemas.text import storable
from services.scheduler.core.mask import Amounts, Misfit, NodeRoom
from services.scheduler.launchers.kubernetes import requests
from services.scheduler.launchers.kubernetes.starts import REFUSED, unscheduled

FIRST_SECONDS = 60.0
LONGEST_SECONDS = 1800.0
# In their words, where it is the size of the pod that does not fit, and not the node at all.
_SIZE = ("Insufficient", "OutOf")
_MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class Rejected:
    """`amounts`: what the pod requested; empty where no pod would fit."""

    node_id: str
    amounts: Amounts
    words: str


@dataclass(frozen=True, slots=True)
class _Kept:
    pod: str
    rejected: Rejected
    until: float
    shown_until: str
    number: int  # in a row
    was_full: bool


def rejected(pod: Mapping[str, Any]) -> Rejected | None:
    """By the node that the pod is for; None for one that was not."""
    status = pod.get("status") or {}
    word = status.get("reason") or ""
    if status.get("phase") == "Failed" and word.startswith(REFUSED):
        words = f"{word}: {status.get('message') or ''}"
    else:
        words = unscheduled(pod) or ""
    node_id = pod["spec"].get("nodeName") or node_of(pod)
    if not words or not node_id:
        return None
    is_size = any(each in words for each in _SIZE)
    return Rejected(node_id, requests.of_pod(pod["spec"]) if is_size else {}, words)


def node_of(pod: Mapping[str, Any]) -> str:
    """The node that its affinity names, as `manifest` writes it."""
    try:
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        name: str = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    except (KeyError, IndexError, TypeError):
        return ""
    return name


class Misfits:
    """By node, one: the last. `now` is by the monotonic clock."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def on(self, node_id: str, now: float) -> Misfit | None:
        kept = self._kept.get(node_id)
        if kept is None or now >= kept.until:
            return None
        words = kept.rejected.words[:_MAX_WORDS]
        again = f"not tried there again before {kept.shown_until}"
        return Misfit(kept.rejected.amounts, storable(f"a pod did not fit ({words}); {again}"))

    def note(self, pod: str, found: Rejected, room: NodeRoom, now: float) -> bool:
        """`pod`: its uid, so that one pod counts once. True where that is news."""
        before = self._kept.get(found.node_id)
        if before is not None and before.pod == pod:
            return False
        number = 1 if before is None else before.number + 1
        seconds = min(FIRST_SECONDS * 2 ** min(number - 1, 10), LONGEST_SECONDS)
        shown = f"{datetime.now(UTC) + timedelta(seconds=seconds):%H:%M:%S} UTC"
        was_full = not _fits(found, room)
        self._kept[found.node_id] = _Kept(pod, found, now + seconds, shown, number, was_full)
        return True

    def note_placed(self, pod: str, node_id: str) -> bool:
        """The cluster has found a place for this pod there after all. True where that is news."""
        kept = self._kept.get(node_id)
        if kept is None or kept.pod != pod:
            return False
        del self._kept[node_id]
        return True

    def note_room(self, node_id: str, room: NodeRoom) -> None:
        """What was missing has come back."""
        kept = self._kept.get(node_id)
        if kept is not None and kept.was_full and _fits(kept.rejected, room):
            del self._kept[node_id]

    def expire(self, now: float) -> set[str]:
        """The nodes that may be tried again. How often it was in a row stays known for a while."""
        ended = {node_id for node_id, kept in self._kept.items() if now >= kept.until}
        for node_id in ended:
            if now >= self._kept[node_id].until + LONGEST_SECONDS:
                del self._kept[node_id]
        return ended


def _fits(found: Rejected, room: NodeRoom) -> bool:
    left = room.left({})
    return all(left.get(name, 0) >= amount for name, amount in found.amounts.items())
