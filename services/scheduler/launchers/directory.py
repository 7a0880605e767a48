"""A pod's directory: the files through which launcher and shim communicate.

Created exclusively, so a pod is started once. Files appear by rename, so what can be read is
complete. The pod's own programs can write here as well: what is read decides only how their own pod
ended, is bounded, and may be anything; what is written goes into this directory, whatever links
were put in its path. `close` takes the lock that a shim must hold and moves the spec away: a shim
that starts late finds nothing to run.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import ValidationError

from drivetrain_schemas.base import Value
from drivetrain_schemas.errors import field_errors
from drivetrain_schemas.pods import PodExit, PodIdentity, PodSpec, StopNotice, marker_of
from services.scheduler.launchers import trees
from services.scheduler.launchers.base import PodRef

V = TypeVar("V", bound=Value)

MAX_FILE_BYTES = 1 << 20
# Errors of this machine, not of the pod; any other error comes from the file itself.
MACHINE_FAULTS = frozenset(
    {
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
    }
)

# A program of the pod may have put a link or a pipe here: links are not followed, pipes do not
# block.
_NOT_FOLLOWED = os.O_NOFOLLOW | os.O_NONBLOCK


class InvalidFile(Exception):
    """The file exists and is invalid; the message describes it."""


class PodDirectory:
    def __init__(self, root: Path, pod: PodRef) -> None:
        self.pod = pod
        self._root = root
        self.path = root / pod.job_id / str(pod.attempt) / pod.pod_id

    @property
    def marker(self) -> str:
        """The marker in the environment of every process of the pod."""
        return marker_of(self.path)

    def create(self) -> bool:
        """True when it was created now; False when it existed."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def changed_at_ns(self) -> int | None:
        """When a file last appeared here, by the file system's clock; None without a directory."""
        status = self._status()
        return None if status is None else status.st_mtime_ns

    def exists(self) -> bool:
        status = self._status()
        return status is not None and stat.S_ISDIR(status.st_mode)

    def has_identity(self) -> bool:
        return os.path.lexists(self.path / "identity.json")

    def is_closed(self) -> bool:
        return os.path.lexists(self.path / "spec.closed.json")

    def write_spec(self, spec: PodSpec) -> None:
        self._write("spec.json", spec)

    def write_notice(self, notice: StopNotice) -> None:
        self._write("stop.json", notice)

    def identity(self) -> PodIdentity | None:
        return self._read("identity.json", PodIdentity)

    def exit(self) -> PodExit | None:
        """How the pod ended; also None where the file is another pod's. Raises InvalidFile."""
        end = self._read_valid("exit.json", PodExit)
        return end if end is not None and end.pod_id == self.pod.pod_id else None

    def failed_exit(self, detail: str) -> PodExit:
        """Used for an invalid `exit.json`: the pod has ended, it is unknown how."""
        return PodExit(
            pod_id=self.pod.pod_id,
            outcome="failed",
            ranks=(),
            detail=detail,
            ended_at=datetime.now(UTC),
        )

    def open_log(self) -> BinaryIO:
        """`launch.log`, for the output of a shim while it starts. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NOT_FOLLOWED
        with self._opened() as directory:
            return os.fdopen(os.open("launch.log", flags, 0o600, dir_fd=directory), "ab")

    def close(self) -> bool:
        """Prevent any further start of a shim here; False while one may hold the lock.

        A lock that is not a file was put there by a program of the pod; it is replaced.
        Raises FileNotFoundError or NotADirectoryError where there is no directory.
        """
        with self._opened() as directory:
            try:
                lock = _open_lock(directory)
            except OSError as error:
                if error.errno in MACHINE_FAULTS:
                    raise
                _move_aside("lock", directory)
                lock = _open_lock(directory)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _move_spec_away(directory)
                return True
            except BlockingIOError:
                return False
            finally:
                os.close(lock)

    def _write(self, name: str, value: Value) -> None:
        partial = _temporary(name)
        with self._opened() as directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(partial, flags, 0o600, dir_fd=directory), "w") as file:
                file.write(value.model_dump_json(exclude_none=True))
            try:
                os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
            except IsADirectoryError:
                _move_aside(name, directory)
                os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)

    def _status(self) -> os.stat_result | None:
        """None where there is nothing, or a program of the pod has put a link without end.

        Raises PermissionError where the root is closed, which says nothing about the pod.
        """
        try:
            try:
                return os.lstat(self.path)
            except PermissionError:
                os.close(self._open(trees.open_closed))
                return os.lstat(self.path)
        except PermissionError:
            raise
        except OSError as error:
            if error.errno in MACHINE_FAULTS:
                raise
            return None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The directory itself; a link instead of it, or of one above it, is refused.

        A program of the pod may have closed it, or those above up to the job's.
        """
        try:
            descriptor = self._open(trees.open_directory)
        except PermissionError:
            descriptor = self._open(trees.open_closed)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, open_below: Callable[[str, int], int]) -> int:
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        for name in self.path.relative_to(self._root).parts:
            try:
                below = open_below(name, descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def _read(self, name: str, kind: type[V]) -> V | None:
        try:
            return self._read_valid(name, kind)
        except InvalidFile:
            return None

    def _read_valid(self, name: str, kind: type[V]) -> V | None:
        """None where there is no such file. Raises InvalidFile; OSError if this machine fails."""
        try:
            descriptor = os.open(self.path / name, os.O_RDONLY | _NOT_FOLLOWED)
            try:
                with open(descriptor, "rb", closefd=False) as file:
                    content = file.read(MAX_FILE_BYTES + 1) or b""
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in MACHINE_FAULTS:
                raise
            raise InvalidFile(f"{name} cannot be read: {error.strerror}") from error
        if len(content) > MAX_FILE_BYTES:
            raise InvalidFile(f"{name} has more than {MAX_FILE_BYTES} bytes")
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = field_errors(error)[0]
            raise InvalidFile(f"{name} is invalid: {first.field} {first.message}") from error


def _temporary(name: str) -> str:
    """A name that no program can have used."""
    return f".{name}.{secrets.token_hex(8)}"


def _move_aside(name: str, directory: int) -> None:
    os.rename(name, _temporary(name), src_dir_fd=directory, dst_dir_fd=directory)


def _open_lock(directory: int) -> int:
    return os.open("lock", os.O_RDWR | os.O_CREAT | _NOT_FOLLOWED, 0o600, dir_fd=directory)


def _move_spec_away(directory: int) -> None:
    closed = "spec.closed.json"
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rename("spec.json", closed, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY):
                raise
            _move_aside("spec.json", directory)
    with contextlib.suppress(OSError):  # whatever it is, its presence means that this is closed
        os.close(os.open(closed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory))
