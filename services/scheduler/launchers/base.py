"""The interface of a launcher, whatever runs the pods.

Every method is idempotent, because the scheduler repeats what it has not recorded. `observe` only
looks. A pod is gone when `kill` has returned it, or when it is observed as ENDED.

Errors are the same for all methods: after `LauncherUnavailable` nothing is known of any pod, and
the call is repeated; `OSError` is trouble of this machine with one pod. Nothing else is raised.
Calls run outside transactions and with a time limit; `launch` and `notify` are called for several
pods at a time.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from drivetrain_schemas.pods import PodExit, PodSpec, StopNotice
from services.runtime.errors import TemporaryError
from services.scheduler.core.pods import EndReason, Sight
from services.scheduler.core.waits import Wait


class LauncherUnavailable(TemporaryError):
    """What runs the pods does not answer (in a cluster, its API server): nothing is known."""

    part: ClassVar[str] = "launcher"


class LaunchRefused(Exception):
    """No pod was created, and the same call cannot succeed now: a quota, an invalid name."""

    def __init__(self, why: EndReason) -> None:
        super().__init__(why.detail)
        self.why = why


class LaunchBlocked(Exception):
    """No pod was created, and the same call succeeds once somebody has mended what `wait` says."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.detail)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class PodRef:
    """Identifies one pod; its directory follows from this alone."""

    job_id: str
    attempt: int
    pod_id: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One observation of a pod.

    `has_leftovers`: its shim has ended, other processes of it have not. `reason`: why the platform
    ended it; counts where there is no `exit.json`. `unreachable`: why nothing new is known of it,
    in a sentence; `sight` is then what was last known. `wait`: why it does not run yet; None where
    that is unknown, or as usual.
    """

    sight: Sight
    exit: PodExit | None = None
    has_leftovers: bool = False
    reason: EndReason | None = None
    unreachable: str = ""
    wait: Wait | None = None

    @property
    def is_running(self) -> bool:
        """A process of it was seen, other than a shim that only sends remaining telemetry."""
        if self.unreachable:
            return False
        return self.has_leftovers or self.sight in (Sight.ALIVE, Sight.ENDING)


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of a run meet: the address of its first pod; a file that all of its pods can
    reach and that does not exist yet, where they share one."""

    address: str
    file: str | None = None


class Launcher(Protocol):
    """`start_seconds`: until a launched pod must run, unless the settings say otherwise."""

    can_run_images: bool
    start_seconds: float

    async def free_ports(self, ports: Sequence[int]) -> Collection[int]:
        """Those at which nothing listens now: only a hint, because the database reserves ports."""

    def rendezvous(self, job_id: str, attempt: int) -> Rendezvous:
        """Known before the pods exist."""

    async def launch(self, spec: PodSpec) -> None:
        """Start the pod unless it exists. Raises LaunchRefused and LaunchBlocked too."""

    async def observe(self, pods: Sequence[PodRef]) -> Mapping[str, Observation]:
        """By pod id, one of each pod."""

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a pod may have ended, until cancelled. Raises nothing.

        It only shortens the wait for the next `observe`: it may be called for nothing, or never.
        """

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        """Send the stop notice; the pod's shim enforces its deadline."""

    async def kill(self, pods: Sequence[PodRef]) -> Collection[str]:
        """Kill all that belongs to these pods; returns those confirmed gone."""

    async def size_bytes(self, job_id: str) -> int:
        """The disk space of what the pods of a finished job left behind."""

    async def remove(self, job_id: str) -> None:
        """Remove what the pods of a finished job left behind."""
