"""The launchers that the contract suite runs on, and what a test needs to know of their pods."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from drivetrain_schemas.pods import PodSpec, StopNotice, marker_of
from drivetrain_schemas.runs import WaitCause
from services.runtime import cgroups, processes
from services.scheduler.core.waits import Wait
from services.scheduler.launchers.base import LaunchBlocked, Launcher, PodRef
from services.scheduler.launchers.directory import PodDirectory
from services.scheduler.launchers.local import LocalLauncher
from tests.handlers.scheduler.world import FakeLauncher
from tests.integration.scheduler.pods import make_launcher, make_pod_spec, ref_of

SUCCEEDS = ("true",)
FAILS = ("sh", "-c", "exit 1")
SLEEPS = ("sleep", "600")
STOPS = ("sh", "-c", "trap 'exit 75' TERM; while :; do sleep 0.05; done")
IGNORES_THE_NOTICE = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")


class Rig(ABC):
    """One launcher. A new kind of launcher adds its own rig to `RIGS`."""

    launcher: Launcher

    def spec(self, command: Sequence[str], **changes: int) -> PodSpec:
        """`changes`: attempt, index, ranks."""
        return make_pod_spec(list(command), **changes)

    @abstractmethod
    def restarted(self) -> Launcher:
        """Another launcher of the same pods, as a restarted scheduler has one."""

    @abstractmethod
    def counted(self) -> tuple[str, ...]:
        """A command that sleeps, and each start of which is counted."""

    @abstractmethod
    def num_starts(self) -> int:
        """How often that command was started."""

    @abstractmethod
    def notice(self, pod: PodRef) -> StopNotice | None:
        """The stop notice, as the pod finds it."""

    @abstractmethod
    def refuse(self) -> None:
        """No pod can be created, for a reason that an operator has to mend."""

    @abstractmethod
    def mend(self) -> None:
        """That is over."""

    @abstractmethod
    async def close(self) -> None:
        """Nothing of the test's pods is left."""


class ActingFake(FakeLauncher):
    """Its pods do what their commands would."""

    is_refused = False

    async def launch(self, spec: PodSpec) -> None:
        if self.is_refused:
            raise LaunchBlocked(Wait(WaitCause.REFUSED, "the test", "refused by the test"))
        is_new = spec.pod_id not in self.specs
        await super().launch(spec)
        if is_new and spec.job.command in (SUCCEEDS, FAILS):
            self.end(spec.pod_id, "succeeded" if spec.job.command == SUCCEEDS else "failed")

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        await super().notify(pod, notice)
        if self.specs[pod.pod_id].job.command == STOPS:
            self.end(pod.pod_id, "interrupted")


class FakeRig(Rig):
    def __init__(self, directory: Path) -> None:
        self.launcher: ActingFake = ActingFake()

    def restarted(self) -> Launcher:
        other = ActingFake()
        other.sights, other.specs = self.launcher.sights, self.launcher.specs
        other.starts = self.launcher.starts
        return other

    def counted(self) -> tuple[str, ...]:
        return SLEEPS

    def num_starts(self) -> int:
        return len(self.launcher.starts)

    def notice(self, pod: PodRef) -> StopNotice | None:
        return self.launcher.notices.get(pod.pod_id)

    def refuse(self) -> None:
        self.launcher.is_refused = True

    def mend(self) -> None:
        self.launcher.is_refused = False

    async def close(self) -> None:
        self.launcher.sights.clear()


class LocalRig(Rig):
    def __init__(self, directory: Path) -> None:
        self._root = directory / "pods"
        self._aside = directory / "aside"
        self._starts = directory / "starts"
        self._launchers = [make_launcher(self._root)]
        self.launcher: LocalLauncher = self._launchers[0]

    def restarted(self) -> Launcher:
        self._launchers.append(make_launcher(self._root))
        return self._launchers[-1]

    def counted(self) -> tuple[str, ...]:
        return ("sh", "-c", f"echo started >> {shlex.quote(str(self._starts))}; exec sleep 600")

    def num_starts(self) -> int:
        return len(self._starts.read_text().splitlines()) if self._starts.exists() else 0

    def notice(self, pod: PodRef) -> StopNotice | None:
        path = PodDirectory(self._root, pod).path / "stop.json"
        return StopNotice.model_validate_json(path.read_text()) if path.exists() else None

    def refuse(self) -> None:
        """Something else is where the directory of the pods was."""
        self._root.mkdir(exist_ok=True)
        self._root.rename(self._aside)
        self._root.write_text("")

    def mend(self) -> None:
        self._root.unlink()
        self._aside.rename(self._root)

    async def close(self) -> None:
        left = frozenset(marker_of(pod) for pod in self._root.glob("job_*/*/pod_*"))
        assert processes.kill_marked(left, 10) == left
        for marker in left:
            cgroups.remove(marker)
        for launcher in self._launchers:
            for child in launcher._children:
                child.wait(10)


RIGS: dict[str, type[Rig]] = {"fake": FakeRig, "local": LocalRig}

__all__ = [
    "FAILS",
    "IGNORES_THE_NOTICE",
    "RIGS",
    "SLEEPS",
    "STOPS",
    "SUCCEEDS",
    "Rig",
    "ref_of",
]
