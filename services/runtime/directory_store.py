"""The object store of one machine: a directory. Durable: fsync, rename, fsync of the directory.

Only `create_root` makes its root: a store whose root is missing is unavailable, and must not be
replaced by an empty one. Directories that a deletion leaves empty are removed; partial files and
empty directories of a killed writer are removed by a listing once they are a day old.
"""

import asyncio
import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from drivetrain_schemas.object_store import failure_of_errno
from services.runtime.errors import StoreError
from services.runtime.object_store import CHUNK_BYTES, NoSuchObject, ObjectInfo, Upload

_PARTIAL = ".partial-"
_LEFT_SECONDS = 24 * 3600
_WRITE_TRIES = 3
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def create_root(self) -> None:
        """For the first start of a platform only."""
        with self._as_store_error(self._root):
            await asyncio.to_thread(_make_directories, self._root, Path(self._root.anchor))

    async def put(self, key: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, key, content, replace=True)

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        return await asyncio.to_thread(self._write, key, content, replace=False)

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        with self._as_store_error(path, missing=key):
            return await asyncio.to_thread(_read, path)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        path = self._path(key)
        with self._as_store_error(path, missing=key):
            return await asyncio.to_thread(_read_range, path, start, end)

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        path = self._path(key)
        with self._as_store_error(path, missing=key):
            file = await asyncio.to_thread(_open_regular, path)
        with file:
            while True:
                with self._as_store_error(path):
                    piece = await asyncio.to_thread(file.read, CHUNK_BYTES)
                if not piece:
                    return
                yield piece

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        base = self._path(prefix.rpartition("/")[0])
        with self._as_store_error(base):
            return await asyncio.to_thread(self._list, base, prefix)

    async def delete(self, key: str) -> None:
        path = self._path(key)
        with self._as_store_error(path), contextlib.suppress(*_MISSING):
            await asyncio.to_thread(path.unlink)
        await asyncio.to_thread(self._remove_empty, path.parent)

    async def list_uploads(self, prefix: str) -> Sequence[Upload]:
        return ()

    async def abort(self, upload: Upload) -> None:
        return None

    async def close(self) -> None:
        return None

    def _path(self, key: str) -> Path:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} leaves the object store: keys are relative, without ..")
        return self._root / key

    def _write(self, key: str, content: bytes, *, replace: bool) -> bool:
        path = self._path(key)
        with self._as_store_error(path):
            for _ in range(_WRITE_TRIES - 1):
                # A concurrent deletion may have just removed the directory, which was empty.
                with contextlib.suppress(FileNotFoundError):
                    return self._write_once(path, content, replace=replace)
            return self._write_once(path, content, replace=replace)

    def _write_once(self, path: Path, content: bytes, *, replace: bool) -> bool:
        partial = path.parent / f"{_PARTIAL}{secrets.token_hex(8)}"
        try:
            _make_directories(path.parent, self._root)
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                partial.rename(path)
            elif not _link(partial, path):
                return False
            _sync_directory(path.parent)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        return True

    def _list(self, base: Path, prefix: str) -> Sequence[ObjectInfo]:
        found = []
        for folder, folders, names in os.walk(base, onerror=_raise_unless_missing):
            if not folders and not names and Path(folder) != self._root:
                _remove_if_left(Path(folder))
            for name in names:
                path = Path(folder, name)
                if name.startswith(_PARTIAL):
                    _remove_if_left(path)
                    continue
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    try:
                        status = path.stat()
                    except FileNotFoundError:
                        continue  # deleted meanwhile
                    if stat.S_ISREG(status.st_mode):
                        found.append(ObjectInfo(key, status.st_size))
        return sorted(found, key=lambda item: item.key)

    def _remove_empty(self, folder: Path) -> None:
        """This directory and those above it, as far as they are empty, but never the root."""
        with contextlib.suppress(OSError):
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent

    @contextlib.contextmanager
    def _as_store_error(self, path: Path, *, missing: str | None = None) -> Iterator[None]:
        """`missing`: the key that does not exist where the file does not."""
        try:
            yield
        except OSError as error:
            if missing is not None and isinstance(error, _MISSING):
                raise NoSuchObject(missing) from None
            raise StoreError(
                f"object store: {path}: {error.strerror}", failure_of_errno(error.errno)
            ) from error


def _read(path: Path) -> bytes:
    with _open_regular(path) as file:
        return file.read()


def _read_range(path: Path, start: int, end: int) -> bytes:
    with _open_regular(path) as file:
        file.seek(start)
        return file.read(end - start)


def _open_regular(path: Path) -> BinaryIO:
    """Only files are objects: the open of a pipe would wait for ever, a device has no end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise FileNotFoundError(errno.ENOENT, "no regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _raise_unless_missing(error: OSError) -> None:
    """A directory that was removed meanwhile is empty; anything else in its place is an error."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _remove_if_left(path: Path) -> None:
    """A writer that was killed leaves its partial file; no running one takes that long."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _LEFT_SECONDS:
            path.rmdir() if path.is_dir() else path.unlink()


def _make_directories(path: Path, root: Path) -> None:
    """Those below `root`; each new entry survives a power failure."""
    if path != root and not path.is_dir():
        _make_directories(path.parent, root)
        # Another writer may have made it, and a deletion may have removed it again: with
        # exist_ok=True that is an error. What is in the way otherwise, the write itself reports.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        _sync_directory(path.parent)


def _link(partial: Path, path: Path) -> bool:
    """False when the name is taken."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
