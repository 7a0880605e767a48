"""Pods as processes of this machine, each in a directory of its own, under a shim.

A shim is forked from the warm template, or started cold when no template answers. It is in its own
session and shares nothing with the scheduler, so it survives the scheduler's end; a new scheduler
adopts it by reading its directory. Observing pods means reading files and /proc, in a thread.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drivetrain_schemas.pods import MARKER, PodIdentity, PodSpec, StopNotice
from drivetrain_schemas.runs import WaitCause
from services.runtime import cgroups, logs, processes
from services.scheduler import instruments
from services.scheduler.core.pods import EndKind, EndReason, Sight
from services.scheduler.core.waits import wait_of
from services.scheduler.launchers import template, trees
from services.scheduler.launchers.base import LaunchBlocked, Observation, PodRef, Rendezvous
from services.scheduler.launchers.directory import MACHINE_FAULTS, InvalidFile, PodDirectory
from services.scheduler.launchers.watches import Watches

log = logs.get()

KILL_SECONDS = 2.0
MAX_TASKS = 4096  # processes and threads, for each rank of a pod
SHIM = (sys.executable, "-m", "drivetrain.pod")


# A directory that changed so recently may change again without a later time: clocks of file
# systems tick every few milliseconds.
_SETTLED_NS = 1_000_000_000
# A pod's own program may make changes look older: everything is read again after this.
_TRUSTED_SECONDS = 30.0
_SILENT_TEMPLATE_SECONDS = 30.0
# Nothing of the platform stops a shim: a program of the pod has, and it ends nothing any more.
_MAX_STOPPED_SECONDS = 60.0
_STOPPED = EndReason(EndKind.FAILED, "a program of the pod stopped its shim for over a minute")


@dataclass(frozen=True, slots=True)
class _Alive:
    """A pod that was seen alive, and its directory's time of change; valid `until`, monotonic."""

    directory: PodDirectory
    changed_at_ns: int
    shim: PodIdentity
    until: float


class LocalLauncher:
    can_run_images = False
    start_seconds = 30.0

    def __init__(
        self, root: Path, template_socket: Path | None, shim: Sequence[str] = SHIM
    ) -> None:
        self._root = root.absolute()
        self._template_socket = template_socket
        self._shim = tuple(shim)
        self._children: list[subprocess.Popen[bytes]] = []
        # Shims that were seen alive with their pod's marker. Later content of identity.json is
        # ignored: a program of the pod can write it.
        self._shims: dict[str, PodIdentity] = {}
        self._alive: dict[str, _Alive] = {}
        self._stopped_at: dict[str, float] = {}
        self._ask_template_at = 0.0
        self._watches = Watches()
        if why := cgroups.why_none():
            log.warning("memory and processes of pods have no limit", why=why)

    async def free_ports(self, ports: Sequence[int]) -> frozenset[int]:
        return await asyncio.to_thread(lambda: frozenset(filter(_is_port_free, ports)))

    def rendezvous(self, job_id: str, attempt: int) -> Rendezvous:
        file = self._root / job_id / str(attempt) / "rendezvous"
        return Rendezvous("127.0.0.1", str(file))

    async def launch(self, spec: PodSpec) -> None:
        """A directory without an identity is an interrupted start: it is repeated."""
        directory = self._directory(PodRef(spec.job_id, spec.attempt, spec.pod_id))
        try:
            await self._launch(directory, spec)
        except OSError as error:
            if error.errno in MACHINE_FAULTS or not os.access(self._root, os.W_OK | os.X_OK):
                why = f"no pod can be started in {self._root}: {error.strerror}"
                by = "the scheduler's machine"
                raise LaunchBlocked(wait_of(WaitCause.REFUSED, by, why)) from error
            raise

    async def _launch(self, directory: PodDirectory, spec: PodSpec) -> None:
        if not await asyncio.to_thread(_prepare, directory, spec):
            return
        self._watches.add(spec.pod_id, directory.path)
        answer = await self._ask_template(directory)
        if answer is template.Answer.REFUSED:
            await asyncio.to_thread(self._start_cold, directory)
        instruments.LAUNCHES.labels("cold" if answer is template.Answer.REFUSED else "warm").inc()
        log.info("pod launched", pod_id=spec.pod_id, template=str(answer))

    async def observe(self, pods: Sequence[PodRef]) -> Mapping[str, Observation]:
        found = await asyncio.to_thread(self._observe, pods)
        for pod in pods:
            if found[pod.pod_id].sight is Sight.ALIVE:
                self._watches.add(pod.pod_id, self._directory(pod).path)
        self._watches.keep(found.keys())
        return found

    async def watch(self, wake: Callable[[], None]) -> None:
        await self._watches.run(wake)

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        await asyncio.to_thread(self._notify, pod, notice)

    async def kill(self, pods: Sequence[PodRef]) -> frozenset[str]:
        return await asyncio.to_thread(self._kill, pods)

    async def size_bytes(self, job_id: str) -> int:
        return await asyncio.to_thread(trees.disk_bytes, self._root / job_id)

    async def remove(self, job_id: str) -> None:
        await asyncio.to_thread(trees.remove_tree, self._root / job_id)

    def _directory(self, pod: PodRef) -> PodDirectory:
        known = self._alive.get(pod.pod_id)
        return PodDirectory(self._root, pod) if known is None else known.directory

    async def _ask_template(self, directory: PodDirectory) -> template.Answer:
        """One that does not answer is not asked for a while: launches wait for each other."""
        if self._template_socket is None or time.monotonic() < self._ask_template_at:
            return template.Answer.REFUSED
        answer = await template.ask(str(self._template_socket), str(directory.path))
        if answer is template.Answer.UNKNOWN:
            self._ask_template_at = time.monotonic() + _SILENT_TEMPLATE_SECONDS
            log.warning("template does not answer, pods start cold for a while")
        return answer

    def _start_cold(self, directory: PodDirectory) -> None:
        # The pod must not receive the scheduler's settings, which contain passwords.
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN_")
        }
        environment[MARKER] = directory.marker
        with directory.open_log() as output:
            child = subprocess.Popen(
                [*self._shim, "--directory", str(directory.path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory.path,
                env=environment,
                start_new_session=True,
            )
        self._children.append(child)

    def _observe(self, pods: Sequence[PodRef]) -> dict[str, Observation]:
        # Children that ended stay zombies until they are polled.
        self._children = [child for child in self._children if child.poll() is None]
        directories = {pod.pod_id: self._directory(pod) for pod in pods}
        first = {pod_id: self._see(directory) for pod_id, directory in directories.items()}
        self._alive = {pod: alive for pod, alive in self._alive.items() if pod in first}
        if all(seen.exit is None and seen.sight is not Sight.DEAD for seen in first.values()):
            return first
        # Processes left by a pod are searched for after its end was seen, never before.
        everything = processes.census()
        found = {}
        for pod_id, directory in directories.items():
            pids = processes.of_pod(everything, directory.marker)
            found[pod_id] = _with_leftovers(first[pod_id], pids, self._shims.get(pod_id))
            if found[pod_id].sight is Sight.ENDED:
                self._shims.pop(pod_id, None)  # no longer observed
                self._stopped_at.pop(pod_id, None)
        return found

    def _unless_stopped(self, pod_id: str, state: bytes) -> Observation:
        """Alive, or dead where its shim has been stopped for too long: it can neither end the pod
        nor say how it ended."""
        if state not in (b"T", b"t"):
            self._stopped_at.pop(pod_id, None)
            return Observation(Sight.ALIVE)
        since = self._stopped_at.setdefault(pod_id, time.monotonic())
        if time.monotonic() - since < _MAX_STOPPED_SECONDS:
            return Observation(Sight.ALIVE)
        return Observation(Sight.DEAD, reason=_STOPPED)

    def _see(self, directory: PodDirectory) -> Observation:
        """What `_look` finds; no file is read where only the shim's state can have changed.

        Every file of a pod appears by rename, which changes the time of its directory.
        """
        pod_id = directory.pod.pod_id
        known = self._alive.get(pod_id)
        changed_at = directory.changed_at_ns()
        now = time.monotonic()
        is_same = known is not None and known.changed_at_ns == changed_at and now < known.until
        if known is not None and is_same and (state := processes.state(known.shim)):
            return self._unless_stopped(pod_id, state)
        self._alive.pop(pod_id, None)
        seen = self._look(directory)
        shim = self._shims.get(pod_id) if seen.sight is Sight.ALIVE else None
        is_settled = changed_at is not None and time.time_ns() - changed_at > _SETTLED_NS
        if shim is not None and changed_at is not None and is_settled:
            self._alive[pod_id] = _Alive(directory, changed_at, shim, now + _TRUSTED_SECONDS)
        return seen

    def _look(self, directory: PodDirectory) -> Observation:
        # Read before its shim is looked for, which may write it meanwhile and be alive.
        has_identity = directory.has_identity()
        shim = self._shim_of(directory)
        state = None if shim is None else processes.state(shim)
        if state is None and not directory.exists():
            return Observation(Sight.ABSENT)
        # Read last: a shim writes it and then ends, so "not alive, no exit" is certain.
        try:
            end = directory.exit()
        except InvalidFile as invalid:
            # While the shim runs, its own may still be written.
            end = None if state is not None else directory.failed_exit(str(invalid))
        if end is not None:
            return Observation(Sight.ENDED, end)
        if state is not None:
            return self._unless_stopped(directory.pod.pod_id, state)
        was_started = shim is not None or has_identity or directory.is_closed()
        return Observation(Sight.DEAD if was_started else Sight.CREATED)

    def _shim_of(self, directory: PodDirectory) -> PodIdentity | None:
        """The pod's shim; None before it is known, and where it can no longer be found."""
        pod_id = directory.pod.pod_id
        if pod_id not in self._shims:
            identity = directory.identity()
            if identity is not None and processes.is_shim(identity, directory.marker):
                self._shims[pod_id] = identity
        return self._shims.get(pod_id)

    def _notify(self, pod: PodRef, notice: StopNotice) -> None:
        directory = self._directory(pod)
        try:
            directory.write_notice(notice)
        finally:
            shim = self._shim_of(directory)
            if shim is not None:
                processes.send(shim, directory.marker, signal.SIGTERM)

    def _kill(self, pods: Sequence[PodRef]) -> frozenset[str]:
        directories = [self._directory(pod) for pod in pods]
        gone = processes.kill_marked(frozenset(each.marker for each in directories), KILL_SECONDS)
        closed = [each for each in directories if each.marker in gone and _close(each)]
        # Once no shim can start any more: one may have started since the last observation.
        everything = processes.census()
        ended = {
            each.pod.pod_id for each in closed if not processes.of_pod(everything, each.marker)
        }
        for each in closed:
            cgroups.remove(each.marker)
        self._shims = {pod: shim for pod, shim in self._shims.items() if pod not in ended}
        self._stopped_at = {pod: at for pod, at in self._stopped_at.items() if pod not in ended}
        return frozenset(ended)


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a listening socket sets it: a closed connection's rest does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _prepare(directory: PodDirectory, spec: PodSpec) -> bool:
    """True when a shim is to be started in the directory."""
    if not directory.create() and (directory.identity() is not None or directory.is_closed()):
        return False
    groups = cgroups.make(directory.marker, spec.memory_bytes, MAX_TASKS * spec.num_ranks)
    directory.write_spec(spec.model_copy(update={"groups": groups}))
    return True


def _close(directory: PodDirectory) -> bool:
    """No shim can start there any more, or there is no directory to start one in. False also where
    this machine cannot say so now: it must not keep other pods from being killed."""
    try:
        return directory.close()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        if error.errno not in MACHINE_FAULTS:
            raise
        log.warning("pod not closed", pod_id=directory.pod.pod_id, error=str(error))
        return False


def _with_leftovers(
    seen: Observation, pids: frozenset[int], shim: PodIdentity | None
) -> Observation:
    """A pod has not ended while a process of it other than its shim is left.

    The shim writes `exit.json` when nothing else is left, and may still send telemetry.
    """
    others = pids - {shim.pid} if shim is not None else pids
    if not others:
        return seen
    if seen.exit is None:
        return replace(seen, has_leftovers=seen.sight is Sight.DEAD)
    return replace(seen, sight=Sight.ENDING)
