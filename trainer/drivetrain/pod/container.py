"""A shim as the first process of a container: its directory, and how its end leaves the container.

The spec is mounted, and the pod's directory is made below a volume of the pod. The end goes out as
the container's termination message first, which Kubernetes bounds, and whole into the object store.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drivetrain.errors import EXIT_INTERRUPTED, StorageError
from drivetrain.pod.notices import Notices
from drivetrain.results import write_atomically
from drivetrain.storage import open_storage
from drivetrain_schemas.pod_ends import exit_key, termination_message
from drivetrain_schemas.pods import PodExit, PodSpec, StopNotice

TERMINATION_LOG = Path("/dev/termination-log")
STORE_SECONDS = 10.0
# The devices are held while the rest of the telemetry is sent.
TELEMETRY_SECONDS = 15.0
# Until the cluster's DNS has the name of a new pod.
NAME_SECONDS = 120.0
_EXIT_CODES = {"succeeded": 0, "failed": 1, "interrupted": EXIT_INTERRUPTED}
_logger = logging.getLogger("drivetrain.pod")


@dataclass(frozen=True, slots=True)
class Container:
    """`notice`: the file of the annotation; `notice_seconds`: how long a pod has to
    stop that was not deleted by the platform."""

    notice: Path
    notice_seconds: float
    termination_log: Path = TERMINATION_LOG

    def notices(self, directory: Path) -> Notices:
        default = StopNotice(reason="shutdown", deadline_seconds=self.notice_seconds)
        return Notices(directory, self.notice, default)

    def publish(self, spec: PodSpec, end: PodExit) -> None:
        """Never raises: with one of the two the end is known."""
        metric = None if spec.job.metric is None else spec.job.metric.name
        try:
            self.termination_log.write_bytes(termination_message(end, metric))
        except OSError as error:
            _logger.error("the termination message is not written: %s", error)
        # A thread of its own, because a store that is away may not answer for long.
        storing = threading.Thread(target=_store, args=(spec, end), daemon=True)
        storing.start()
        storing.join(STORE_SECONDS)
        if storing.is_alive():
            _logger.error("exit.json is not in the object store after %g s", STORE_SECONDS)


def make_directory(root: Path, spec_path: Path) -> Path:
    """The pod's directory with its spec, made now or by the init step."""
    content = spec_path.read_bytes()
    spec = PodSpec.model_validate_json(content)
    directory = root / spec.job_id / str(spec.attempt) / spec.pod_id
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (directory / "spec.json").exists():
        write_atomically(directory / "spec.json", content.decode())
    return directory


def wait_for_name(spec: PodSpec, must_stop: Callable[[], bool]) -> str:
    """Wait for the first pod's address. Why it is not known; empty also when the pod must stop."""
    if spec.rendezvous_address is None:
        return ""
    deadline = time.monotonic() + NAME_SECONDS
    while not must_stop():
        try:
            socket.getaddrinfo(spec.rendezvous_address, spec.master_port)
            return ""
        except OSError as error:
            if time.monotonic() > deadline:
                return f"the first pod's address {spec.rendezvous_address} is not known: {error}"
        time.sleep(0.1)
    return ""


def exit_code(end: PodExit) -> int:
    return _EXIT_CODES[end.outcome]


def _store(spec: PodSpec, end: PodExit) -> None:
    key = exit_key(spec.job_id, spec.attempt, spec.pod_id)
    content = end.model_dump_json(exclude_none=True).encode()
    deadline = time.monotonic() + STORE_SECONDS
    while True:
        try:
            storage = open_storage(
                spec.object_store_url,
                spec.object_store_endpoint_url,
                store_id=spec.object_store_id,
            )
            storage.put(key, content)
            return
        except StorageError as error:
            if time.monotonic() + 1.0 > deadline:
                _logger.error("exit.json is not in the object store: %s", error)
                return
            time.sleep(1.0)
