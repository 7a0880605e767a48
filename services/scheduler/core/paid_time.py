"""Until when the owner of an allocation pays (docs/architecture.md, rule 13).

A pod's time is paid until its own end. Its `exit.json` contains that time, but a program of the pod
can write that file, so it is accepted only between the last time that the scheduler itself saw the
pod alive and the release. A pod that left no `exit.json` is paid until it was last seen alive. A
gang is paid until the last of its pods has ended. The time that the slots were held beyond that is
the platform's own cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PodTime:
    """`ended_at` is the time in `exit.json`; `seen_at` is when the scheduler last saw it alive."""

    ended_at: datetime | None = None
    seen_at: datetime | None = None


def paid_ends_at(granted_at: datetime, released_at: datetime, pods: Sequence[PodTime]) -> datetime:
    """From `granted_at` (nothing is paid) to `released_at` (all of it is)."""
    known = [moment for pod in pods for moment in (pod.ended_at, pod.seen_at) if moment is not None]
    return min(max([granted_at, *known]), released_at)
