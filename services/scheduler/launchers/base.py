"""The interface of a launcher, whatever runs the pods.

Every method is idempotent, because the scheduler repeats what it has not recorded. `observe` only
looks. A pod is gone when `kill` has returned it, or when it is observed as ENDED.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from drivetrain_schemas.pods import PodExit, PodSpec, StopNotice
from services.scheduler.core.pods import Sight


@dataclass(frozen=True, slots=True)
class PodRef:
    """Identifies one pod; its directory follows from this alone."""

    job_id: str
    attempt: int
    pod_id: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of a pod.

    `has_leftovers`: its shim has ended, other processes of it have not.
    """

    sight: Sight
    exit: PodExit | None = None
    has_leftovers: bool = False

    @property
    def is_running(self) -> bool:
        """A process of it was seen, other than a shim that only sends remaining telemetry."""
        return self.has_leftovers or self.sight in (Sight.ALIVE, Sight.ENDING)


class Launcher(Protocol):
    can_run_images: bool

    def is_port_free(self, port: int) -> bool:
        """Nothing listens there now: only a hint, because the database reserves the port."""

    def rendezvous_file(self, job_id: str, attempt: int) -> str:
        """A file that all pods of the attempt can reach; it does not exist yet."""

    async def launch(self, spec: PodSpec) -> None:
        """Start the pod unless it exists. Raises OSError."""

    async def observe(self, pods: Sequence[PodRef]) -> Mapping[str, Observation]: ...

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a pod may have ended, until cancelled.

        It only shortens the wait for the next `observe`: it may be called for nothing, or never.
        """

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        """Send the stop notice; the pod's shim enforces its deadline. Raises OSError."""

    async def kill(self, pods: Sequence[PodRef]) -> Collection[str]:
        """Kill all that belongs to these pods; returns those confirmed gone."""

    async def size_bytes(self, job_id: str) -> int:
        """The disk space of what the pods of a finished job left behind."""

    async def remove(self, job_id: str) -> None:
        """Remove what the pods of a finished job left behind. Raises OSError."""
