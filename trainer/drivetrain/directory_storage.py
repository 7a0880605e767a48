"""Storage in a directory: one file per key, written beside it, synced, then renamed.

Only `create_root` creates the root, for a new store. If the root is missing, the store is
unavailable; a write does not create it again.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from drivetrain.errors import StorageError
from drivetrain_schemas.object_store import failure_of_errno

_WRITE_TRIES = 3
_PIECE_BYTES = 4 * 1024 * 1024

Piece = bytes | memoryview


class DirectoryStorage:
    """One file per key below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create_root(self) -> None:
        with _as_storage_error(str(self._root)):
            _make_directories(self._root, Path(self._root.anchor))

    def put(self, key: str, data: bytes) -> None:
        self._write(key, (data,), replace=True)

    def put_pieces(self, key: str, pieces: Iterable[Piece], size_bytes: int) -> None:
        self._write(key, pieces, replace=True)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._write(key, (data,), replace=False)

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        with _as_storage_error(key):
            try:
                return _read_regular(self._root / key, max_bytes)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def get_pieces(self, key: str) -> Iterator[bytes] | None:
        with _as_storage_error(key):
            try:
                return _read_pieces(key, _open_regular(self._root / key))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str = "") -> list[str]:
        with _as_storage_error(prefix):
            start = self._root / prefix.rpartition("/")[0]
            keys = (
                path.relative_to(self._root).as_posix()
                for path in _walk(start)
                if not path.name.startswith(".")
            )
            return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        with _as_storage_error(key):
            path = self._root / key
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other files are in it
                if path.parent != self._root:
                    path.parent.rmdir()

    def close(self) -> None:
        return None

    def _write(self, key: str, pieces: Iterable[Piece], *, replace: bool) -> bool:
        with _as_storage_error(key):
            for _ in range(_WRITE_TRIES - 1):
                # A concurrent deletion may have just removed the directory, which was empty.
                with contextlib.suppress(FileNotFoundError):
                    return self._write_once(self._root / key, pieces, replace=replace)
            return self._write_once(self._root / key, pieces, replace=replace)

    def _write_once(self, target: Path, pieces: Iterable[Piece], *, replace: bool) -> bool:
        _make_directories(target.parent, self._root)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                temporary.rename(target)
            elif not _link(temporary, target):
                return False
            _sync_directory(target.parent)
            return True
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _open_regular(path: Path) -> int:
    """A descriptor. A pipe would block forever, and a device has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path} is not a regular file")
    return descriptor


def _read_regular(path: Path, max_bytes: int | None) -> bytes:
    with open(descriptor := _open_regular(path), "rb") as file:
        if max_bytes is None:
            return file.read()
        data = file.read(max_bytes + 1) if os.fstat(descriptor).st_size <= max_bytes else None
        if data is None or len(data) > max_bytes:
            raise StorageError(f"{path} has more than {max_bytes:,} bytes")
        return data


def _read_pieces(key: str, descriptor: int) -> Iterator[bytes]:
    with open(descriptor, "rb", buffering=0) as file, _as_storage_error(key):
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _walk(start: Path) -> Iterator[Path]:
    def complain(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for directory, _, names in os.walk(start, onerror=complain):
        yield from (Path(directory, name) for name in names)


def _make_directories(directory: Path, root: Path) -> None:
    """Create the directories below `root`, each synced like the files in it."""
    if directory != root and not directory.is_dir():
        _make_directories(directory.parent, root)
        with contextlib.suppress(FileExistsError):  # made by another writer meanwhile
            directory.mkdir()
        _sync_directory(directory.parent)


def _link(temporary: Path, target: Path) -> bool:
    """False if the name exists."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    return True


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_storage_error(key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{key}: {error}", failure_of_errno(error.errno)) from error
