"""One pod on a node: from its admission to the deletion of its object, in small repeated steps.

Each step looks at the pod's object and at its containers, and does what is due; so it makes no
difference whether this kubelet or an earlier one did what is there already.
"""

import asyncio
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.kubernetes.kubelet import EVICT, OOM_KILL
from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.containers import Container
from tests.kubernetes.kubelet.environment import ConfigError, command_of, environment_of
from tests.kubernetes.kubelet.names import address_of, hostname_of, write_hosts
from tests.kubernetes.kubelet.objects import Objects
from tests.kubernetes.kubelet.statuses import Seen, phase_of, pod_status
from tests.kubernetes.kubelet.volumes import Volumes

Object = Mapping[str, Any]
STEP_SECONDS = 0.1
RETRY_SECONDS = 0.5
TERMINAL = ("Succeeded", "Failed")
MISSING_IMAGE = "missing"


@dataclass(frozen=True, slots=True)
class Node:
    """What a pod needs to know about its node."""

    api: Api
    name: str
    address: str
    directory: Path
    session_fd: int
    image_environment: Mapping[str, str]
    image_paths: tuple[str, ...]
    names_in: Callable[[str], list[str]]


class PodWorker:
    def __init__(self, node: Node, pod: Object, rejection: tuple[str, str] | None) -> None:
        self.pod = pod
        self._node = node
        metadata = pod["metadata"]
        self._namespace, self._name, self._uid = (
            metadata["namespace"], metadata["name"], metadata["uid"],
        )  # fmt: skip
        self._directory = node.directory / "pods" / self._uid
        self._address = address_of(self._uid)
        self._objects = Objects(node.api, pod)
        self._volumes = Volumes(
            self._directory / "volumes", self._objects.data, self._objects.token
        )
        self._inits = self._containers("initContainers")
        self._mains = self._containers("containers")
        self._waiting = ("ContainerCreating", "")
        self._failure = rejection
        self._is_gone = False
        self._kill_at: float | None = None
        self._try_again_at = 0.0
        self._reported: dict[str, Any] | None = None
        self._changed = asyncio.Event()

    def update(self, pod: Object | None) -> None:
        """The object as it is now; None when the API server has none any more."""
        if pod is None:
            self._is_gone = True
        else:
            self.pod = pod
        self._changed.set()

    def is_using_resources(self) -> bool:
        return self._failure is None and not self._is_finished()

    async def run(self) -> None:
        """Until the object is gone and nothing of the pod runs."""
        reports = asyncio.create_task(self._report_for_ever())
        try:
            while not self._is_gone:
                await self._step()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), STEP_SECONDS)
                self._changed.clear()
        finally:
            reports.cancel()
        while self._is_anything_running():
            self._signal_all(signal.SIGKILL)
            await asyncio.sleep(STEP_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _step(self) -> None:
        annotations = self.pod["metadata"].get("annotations") or {}
        if OOM_KILL in annotations:
            for container in self._mains.values():
                container.run_out_of_memory()
        if EVICT in annotations and self._failure is None and not self._is_finished():
            self._failure = ("Evicted", "The node was low on resource: memory.")
        if self.pod["metadata"].get("deletionTimestamp") or self._failure:
            self._terminate()
        elif not self._is_finished() and time.monotonic() >= self._try_again_at:
            await self._advance()
        if self._directory.exists():
            self._write_hosts()
            await self._volumes.refresh(self.pod)

    def _terminate(self) -> None:
        """SIGTERM once, SIGKILL after the grace period; a shorter one that comes later counts."""
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = 0  # an eviction by the node itself
        at = time.monotonic() + grace
        if any(container.state().kind == "starting" for container in self._all()):
            return  # its status could not be sent yet
        if self._kill_at is None:
            self._signal_all(signal.SIGTERM)
            self._kill_at = at
        self._kill_at = min(self._kill_at, at)
        if time.monotonic() >= self._kill_at:
            self._signal_all(signal.SIGKILL)

    async def _advance(self) -> None:
        """Start the next container, if all before it have ended well."""
        specs = self.pod["spec"]
        try:
            await self._prepare()
            for spec in specs.get("initContainers", ()):
                state = self._inits[spec["name"]].state()
                if state.kind == "absent":
                    await self._start(spec, self._inits[spec["name"]])
                if state.kind != "terminated" or state.exit_code:
                    return
            for spec in specs["containers"]:
                if self._mains[spec["name"]].state().kind == "absent":
                    await self._start(spec, self._mains[spec["name"]])
        except ConfigError as error:
            known = error.reason or "CreateContainerConfigError"
            self._waiting = (known, str(error))
            self._try_again_at = time.monotonic() + RETRY_SECONDS
        except httpx.HTTPError:
            self._try_again_at = time.monotonic() + RETRY_SECONDS

    async def _prepare(self) -> None:
        if self.pod["spec"].get("restartPolicy") == "OnFailure":
            self._failure = ("Unsupported", "the test's kubelet restarts no container")
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        self._write_hosts()
        try:
            await self._volumes.prepare(self._with_addresses())
        except ConfigError as error:
            # A real kubelet reports a missing volume by an event only.
            raise ConfigError(f"MountVolume.SetUp failed: {error}", "ContainerCreating") from None

    async def _start(self, spec: Object, container: Container) -> None:
        if self._failure:
            return
        if spec["image"].startswith(MISSING_IMAGE):
            reason = (
                "ErrImagePull" if self._waiting[0] == "ContainerCreating" else "ImagePullBackOff"
            )
            raise ConfigError(f'Back-off pulling image "{spec["image"]}": not found', reason)
        pod = self._with_addresses()
        base = {
            **self._node.image_environment,
            "HOSTNAME": hostname_of(pod),
            "KUBERNETES_SERVICE_HOST": self._node.api.url.host,
            "KUBERNETES_SERVICE_PORT": str(self._node.api.url.port),
        }
        variables = await environment_of(spec, pod, base, self._objects.data)
        # Without a network of its own a pod would listen on the addresses of all others.
        variables = {
            name: self._address if value in ("0.0.0.0", "::") else value
            for name, value in variables.items()
        }
        command = command_of(spec, variables)
        if not command:
            raise ConfigError("no command specified", "CreateContainerError")
        user, group, read_only = _security(spec, pod)
        container.start(
            {
                "argv": command,
                "env": variables,
                "cwd": spec.get("workingDir") or "/",
                "hostname": hostname_of(pod),
                "uid": user,
                "gid": group,
                "mounts": self._mounts(spec, container),
                "read_only_tmp": read_only,
                "image_paths": list(self._node.image_paths),
            },
            self._node.session_fd,
        )

    def _mounts(self, spec: Object, container: Container) -> list[tuple[str, str, bool]]:
        """(source, target, is read-only)"""
        container.directory.mkdir(parents=True, exist_ok=True)
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes", ())}
        written = {"emptyDir", "hostPath"}
        mounts = [(str(self._directory / "hosts"), "/etc/hosts", True)]
        for mount in spec.get("volumeMounts", ()):
            volume = volumes[mount["name"]]
            read_only = bool(mount.get("readOnly")) or not written & volume.keys()
            source = self._volumes.source(volume, mount)
            mounts.append((str(source), mount["mountPath"], read_only))
        path = spec.get("terminationMessagePath") or "/dev/termination-log"
        return [*mounts, (str(container.termination_log), path, False)]

    def _write_hosts(self) -> None:
        names = self._node.names_in(self._namespace)
        write_hosts(self._directory / "hosts", self.pod, self._address, names)

    def _with_addresses(self) -> Object:
        status = {
            **self.pod.get("status", {}), "podIP": self._address, "hostIP": self._node.address,
        }  # fmt: skip
        return {**self.pod, "status": status}

    def _containers(self, key: str) -> dict[str, Container]:
        found = {}
        for spec in self.pod["spec"].get(key, ()):
            name = spec["name"]
            log = f"{self._namespace}_{self._name}_{self._uid[:8]}_{name}.log"
            directory = self._directory / "containers" / name
            found[name] = Container(directory, self._node.directory / "logs" / log)
        return found

    def _signal_all(self, number: int) -> None:
        for container in self._all():
            container.signal(number)

    def _all(self) -> list[Container]:
        return [*self._inits.values(), *self._mains.values()]

    def _is_anything_running(self) -> bool:
        return any(container.state().kind in ("starting", "running") for container in self._all())

    def _is_finished(self) -> bool:
        if self.pod.get("status", {}).get("phase") in TERMINAL:
            return True
        return phase_of(self._seen()) in TERMINAL

    def _seen(self) -> Seen:
        def falls_back(key: str, name: str) -> bool:
            spec = next(item for item in self.pod["spec"][key] if item["name"] == name)
            return spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"

        inits = {
            name: container.state(falls_back("initContainers", name))
            for name, container in self._inits.items()
        }
        mains = {
            name: container.state(falls_back("containers", name))
            for name, container in self._mains.items()
        }
        is_deleted = bool(self.pod["metadata"].get("deletionTimestamp") or self._failure)
        is_over = is_deleted and not self._is_anything_running()
        # While it still runs, the kubelet has not failed it.
        failure = self._failure if is_over else None
        return Seen(inits, mains, self._waiting, failure, is_over)

    async def _report_for_ever(self) -> None:
        while True:
            try:
                await self._report()
            except httpx.HTTPError:
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(STEP_SECONDS)

    async def _report(self) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods/{self._name}"
        seen = self._seen()
        was_terminal = self.pod.get("status", {}).get("phase") in TERMINAL
        if not (was_terminal and self._reported is None):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = pod_status(self.pod, seen, self._node.address, self._address, now)
            if self._reported is None or _without_times(status) != _without_times(self._reported):
                patch = {"metadata": {"uid": self._uid}, "status": status}
                await self._node.api.patch(f"{path}/status", patch)
                self._reported = status
        if self.pod["metadata"].get("deletionTimestamp") and seen.is_over:
            await self._node.api.delete(path, self._uid)


def _security(spec: Object, pod: Object) -> tuple[int, int, bool]:
    """User and group that the container runs as, and whether its root is read-only."""
    ours = {**(pod["spec"].get("securityContext") or {}), **(spec.get("securityContext") or {})}
    user = int(ours.get("runAsUser") or 0)
    group = int(ours.get("runAsGroup") or 0)
    return user, group, bool(ours.get("readOnlyRootFilesystem"))


def _without_times(status: Object) -> dict[str, Any]:
    conditions = [{**item, "lastTransitionTime": ""} for item in status["conditions"]]
    return {**status, "conditions": conditions, "startTime": ""}
