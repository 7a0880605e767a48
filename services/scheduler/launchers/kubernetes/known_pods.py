"""What is known of each of our pods in the cluster, kept up to date by each change of its object.

Also of pods that are gone from the API server, because how they ended is recorded only after that.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from drivetrain_schemas.pods import PodExit
from services.scheduler.core.pods import EndKind, EndReason, Sight
from services.scheduler.core.waits import Wait
from services.scheduler.launchers.kubernetes import names
from services.scheduler.launchers.kubernetes.api import Object
from services.scheduler.launchers.kubernetes.reading import (
    Reading,
    has_notice,
    read_pod,
    why_disrupted,
)
from services.scheduler.launchers.kubernetes.starts import Stuck, why_stuck

_GONE = EndReason(
    EndKind.DISRUPTED, "the pod is no longer in the cluster: it was deleted, or its node was"
)


@dataclass(frozen=True, slots=True)
class KnownPod:
    """`is_proven`: no process of it is left. `is_settled`: the object store has nothing to add.

    `stuck_since`: by the monotonic clock. `disruption`: why others end it, where they began before
    the platform told it to stop; what they do to it after that is not why its run ended.
    """

    job_id: str
    name: str
    uid: str
    reading: Reading
    node_id: str = ""
    is_proven: bool = False
    is_settled: bool = False
    stuck: Stuck | None = None
    stuck_since: float = 0.0
    was_hopeless: EndReason | None = None
    disruption: EndReason | None = None

    @property
    def wait(self) -> Wait | None:
        """Why it does not run yet, once that is more than what every start takes."""
        if self.stuck is None or self._seconds_stuck < self.stuck.silent_seconds:
            return None
        return self.stuck.wait

    @property
    def _seconds_stuck(self) -> float:
        return time.monotonic() - self.stuck_since

    @property
    def hopeless(self) -> EndReason | None:
        """Why it will not start; None while it may."""
        if self.was_hopeless is not None or self.stuck is None:
            return self.was_hopeless
        is_over = self._seconds_stuck >= self.stuck.patience_seconds
        return self.stuck.reason if is_over else None


class KnownPods:
    """By pod id. `why_unreachable`: of a node by its name, empty while it answers."""

    def __init__(self, why_unreachable: Callable[[str], str]) -> None:
        self._pods: dict[str, KnownPod] = {}
        self._why_unreachable = why_unreachable

    def get(self, pod_id: str) -> KnownPod | None:
        return self._pods.get(pod_id)

    def note(self, item: Object, is_gone: bool) -> bool:
        """Take a change of the object. True where the pod's sight changed."""
        metadata = item["metadata"]
        labels = metadata["labels"]
        if names.JOB not in labels:
            return False  # not of the platform, with a label of its name
        before = self._pods.get(labels[names.POD])
        if is_gone and before is None:
            return False  # it was forgotten with its job
        reading = read_pod(item)
        node_id = item["spec"].get("nodeName") or ""
        seen = why_disrupted(item)
        disruption = before.disruption if before is not None and has_notice(item) else seen
        if reading.reason == seen:
            reading = replace(reading, reason=disruption)
        is_proven = is_gone or reading.sight in (Sight.ENDED, Sight.DEAD)
        hopeless = None if before is None or reading.sight is Sight.ALIVE else before.hopeless
        if is_gone and reading.sight not in (Sight.ENDED, Sight.DEAD):
            unasked = None if has_notice(item) else _GONE
            reading = Reading(Sight.DEAD, reason=self._why_lost(node_id) or disruption or unasked)
        if hopeless is not None and reading.sight is Sight.DEAD:
            reading = replace(reading, reason=hopeless)  # why it was ended
        stuck = None if is_proven else why_stuck(item)
        is_same = stuck and before and before.stuck and before.stuck.is_like(stuck)
        known = KnownPod(
            job_id=labels[names.JOB],
            name=metadata["name"],
            uid=metadata["uid"],
            reading=reading,
            node_id=node_id,
            is_proven=is_proven,
            stuck=stuck,
            stuck_since=before.stuck_since if is_same and before else time.monotonic(),
            was_hopeless=hopeless,
            disruption=disruption,
        )
        if before is not None and before.is_proven and before.is_settled and is_proven:
            return False  # the object of a pod whose end is known
        self._pods[labels[names.POD]] = known
        return before is None or before.reading.sight is not reading.sight

    def settle(self, pod_id: str, end: PodExit | None) -> None:
        """The pod is proven gone, and this is all that the object store has of its end."""
        known = self._pods.get(pod_id)
        if known is None:
            if end is not None:
                reading = Reading(Sight.ENDED, end)
                known = KnownPod("job_" + pod_id.split("_")[1], "", "", reading, is_proven=True)
                self._pods[pod_id] = replace(known, is_settled=True)
            return
        reading = replace(known.reading, is_whole=True)
        if end is not None:
            reading = replace(reading, sight=Sight.ENDED, end=end)
        elif reading.sight not in (Sight.ENDED, Sight.DEAD):
            # The API server has no such pod any more, and the watch has not told so yet.
            why = known.hopeless or self._why_lost(known.node_id) or known.disruption
            reading = Reading(Sight.DEAD, reason=why)
        self._pods[pod_id] = replace(known, reading=reading, is_proven=True, is_settled=True)

    def _why_lost(self, node_id: str) -> EndReason | None:
        """The node of a pod that is gone does not answer: ranks on other nodes may have failed for
        that, and their run been told to stop, long before the cluster knew."""
        if not node_id or not self._why_unreachable(node_id):
            return None
        return EndReason(EndKind.DISRUPTED, f"node {node_id} was lost, and the pod with it")

    def forget(self, job_id: str) -> None:
        self._pods = {pod: known for pod, known in self._pods.items() if known.job_id != job_id}

    def running(self) -> set[str]:
        """Those that are not proven gone."""
        return {pod_id for pod_id, known in self._pods.items() if not known.is_proven}

    def of_job(self, job_id: str) -> list[KnownPod]:
        return [known for known in self._pods.values() if known.job_id == job_id]
