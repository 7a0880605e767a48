"""Until when the owner of an allocation pays (docs/architecture.md, rule 13).

A pod's time is paid until its own end. Its `exit.json` says when that was, but a program of the pod
can write that file, so the claim holds only between the last time that the scheduler itself saw the
pod alive and the release. A pod that left no `exit.json` is paid until it was last seen alive. A
gang is paid until the last of its pods has ended. What the slots were held for longer is the
platform's own cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PodTime:
    """`ended_at` is what `exit.json` claims; `seen_at` when the scheduler last saw it alive."""

    ended_at: datetime | None = None
    seen_at: datetime | None = None


def paid_ends_at(granted_at: datetime, released_at: datetime, pods: Sequence[PodTime]) -> datetime:
    """From `granted_at` (nothing is paid) to `released_at` (all of it is)."""
    known = [moment for pod in pods for moment in (pod.ended_at, pod.seen_at) if moment is not None]
    return min(max([granted_at, *known]), released_at)
