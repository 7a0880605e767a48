"""A pod's directory: the files by which launcher and shim know each other.

Created exclusively, so a pod is started in one place once. Files appear by rename, so what can be
read is whole. `close` takes the lock that a shim must hold and moves the spec away: a shim that
comes late finds nothing to run.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from drivetrain_schemas.base import Value
from drivetrain_schemas.pods import PodExit, PodIdentity, PodSpec, StopNotice
from services.scheduler.launchers.base import PodRef

V = TypeVar("V", bound=Value)

# The pod's own programs can write here as well, so nothing is read without end.
MAX_FILE_BYTES = 1 << 20


class PodDirectory:
    def __init__(self, root: Path, pod: PodRef) -> None:
        self.pod = pod
        self.path = root / pod.job_id / str(pod.attempt) / pod.pod_id

    def create(self) -> bool:
        """True when it was created now; False when it was there."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def exists(self) -> bool:
        return self.path.is_dir()

    def is_closed(self) -> bool:
        return (self.path / "spec.closed.json").exists()

    def write_spec(self, spec: PodSpec) -> None:
        self._write("spec.json", spec)

    def write_notice(self, notice: StopNotice) -> None:
        self._write("stop.json", notice)

    def identity(self) -> PodIdentity | None:
        return self._read("identity.json", PodIdentity)

    def notice(self) -> StopNotice | None:
        return self._read("stop.json", StopNotice)

    def exit(self) -> PodExit | None:
        """How the pod ended; None as well where the file is not this pod's or not readable."""
        end = self._read("exit.json", PodExit)
        return end if end is not None and end.pod_id == self.pod.pod_id else None

    def close(self) -> bool:
        """Make sure that no shim starts here any more; False while one holds the lock."""
        with open(self.path / "lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path / "spec.json", self.path / "spec.closed.json")
            (self.path / "spec.closed.json").touch()
            return True

    def _write(self, name: str, value: Value) -> None:
        partial = self.path / f".{name}.partial"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(value.model_dump_json(exclude_none=True))
        os.rename(partial, self.path / name)

    def _read(self, name: str, kind: type[V]) -> V | None:
        try:
            with open(self.path / name, "rb") as file:
                return kind.model_validate_json(file.read(MAX_FILE_BYTES))
        except (OSError, ValidationError):
            return None
