"""A pod's directory: the files by which launcher and shim know each other.

Created exclusively, so a pod is started in one place once. Files appear by rename, so what can be
read is whole; the pod's own programs can write here as well, so nothing is trusted to fit. `close`
takes the lock that a shim must hold and moves the spec away: a shim that comes late finds nothing
to run.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from drivetrain_schemas.base import Value
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.pods import PodExit, PodIdentity, PodSpec, StopNotice, marker_of
from services.scheduler.launchers.base import PodRef

V = TypeVar("V", bound=Value)

MAX_FILE_BYTES = 1 << 20
# This machine's troubles, which say nothing about the pod; anything else is what lies there.
_TROUBLES = frozenset({errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})

# A program of the pod may have put a link or a pipe here: neither is followed nor waited for.
_AS_IT_LIES = os.O_NOFOLLOW | os.O_NONBLOCK


class Unfit(Exception):
    """A file is there and is not what it should be; the message says what it is instead."""


class PodDirectory:
    def __init__(self, root: Path, pod: PodRef) -> None:
        self.pod = pod
        self.path = root / pod.job_id / str(pod.attempt) / pod.pod_id

    @property
    def marker(self) -> str:
        """What every process of the pod carries."""
        return marker_of(self.path)

    def create(self) -> bool:
        """True when it was created now; False when it was there."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def changed_at_ns(self) -> int | None:
        """When a file last appeared here, by the file system's clock; None without a directory."""
        try:
            return os.lstat(self.path).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return None

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

    def exit(self) -> PodExit | None:
        """How the pod ended; None as well where the file is another pod's. Raises Unfit."""
        end = self._read_fitting("exit.json", PodExit)
        return end if end is not None and end.pod_id == self.pod.pod_id else None

    def failed_exit(self, detail: str) -> PodExit:
        """What stands for an `exit.json` that does not fit: the pod's end is known, its way not."""
        return PodExit(
            pod_id=self.pod.pod_id,
            outcome="failed",
            ranks=(),
            detail=detail,
            ended_at=datetime.now(UTC),
        )

    def close(self) -> bool:
        """Make sure that no shim starts here any more; False while one may hold the lock.

        Raises FileNotFoundError where there is no directory.
        """
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | _AS_IT_LIES, 0o600)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _TROUBLES:
                raise
            return False  # what lies there cannot be locked, so a shim may still come
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path / "spec.json", self.path / "spec.closed.json")
            (self.path / "spec.closed.json").touch()
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)

    def _write(self, name: str, value: Value) -> None:
        partial = self.path / f".{name}.{secrets.token_hex(8)}"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(value.model_dump_json(exclude_none=True))
        os.rename(partial, self.path / name)

    def _read(self, name: str, kind: type[V]) -> V | None:
        try:
            return self._read_fitting(name, kind)
        except Unfit:
            return None

    def _read_fitting(self, name: str, kind: type[V]) -> V | None:
        """None where there is no such file. Raises Unfit, and OSError when this machine fails."""
        try:
            descriptor = os.open(self.path / name, os.O_RDONLY | _AS_IT_LIES)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(MAX_FILE_BYTES + 1) or b""
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in _TROUBLES:
                raise
            raise Unfit(f"{name} cannot be read: {error.strerror}") from error
        if len(content) > MAX_FILE_BYTES:
            raise Unfit(f"{name} has more than {MAX_FILE_BYTES} bytes")
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = field_errors(error)[0]
            raise Unfit(f"{name} does not fit: {first.field} {first.message}") from error
