"""The object store of one machine: a directory. Durable: fsync, rename, fsync of the directory.

Only `create_root` makes its root: a store whose root is missing is unavailable, and must not be
replaced by an empty one. Programs of jobs write below it too, so no link there is followed: each
directory of a key is opened in the one before. Directories that a deletion leaves empty are
removed; partial files and empty directories of a killed writer are removed by a listing once they
are a day old.
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
        with self._as_store_error(""):
            await asyncio.to_thread(_make_directories, self._root, Path(self._root.anchor))

    async def put(self, key: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, key, content, replace=True)

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        return await asyncio.to_thread(self._write, key, content, replace=False)

    async def get(self, key: str) -> bytes:
        with self._as_store_error(key, missing=key):
            return await asyncio.to_thread(self._read, key)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        with self._as_store_error(key, missing=key):
            return await asyncio.to_thread(self._read_range, key, start, end)

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        with self._as_store_error(key, missing=key):
            file = await asyncio.to_thread(self._open, key)
        with file:
            while True:
                with self._as_store_error(key):
                    piece = await asyncio.to_thread(file.read, CHUNK_BYTES)
                if not piece:
                    return
                yield piece

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        with self._as_store_error(prefix):
            return await asyncio.to_thread(self._list, prefix)

    async def delete(self, key: str) -> None:
        with self._as_store_error(key), contextlib.suppress(*_MISSING):
            await asyncio.to_thread(self._delete, key)

    async def list_uploads(self, prefix: str) -> Sequence[Upload]:
        return ()

    async def abort(self, upload: Upload) -> None:
        return None

    async def close(self) -> None:
        return None

    @contextlib.contextmanager
    def _place(self, key: str, *, is_made: bool = False) -> Iterator[tuple[int, str]]:
        """The open directory of an object, and its name there."""
        parts = key.split("/")
        if key.startswith("/") or ".." in parts:
            raise ValueError(f"{key!r} leaves the object store: keys are relative, without ..")
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in filter(None, parts[:-1]):
                inner = _open_directory(part, folder, is_made=is_made)
                os.close(folder)
                folder = inner
            yield folder, parts[-1]
        finally:
            os.close(folder)

    def _open(self, key: str) -> BinaryIO:
        with self._place(key) as (folder, name):
            return _open_regular(name, folder)

    def _read(self, key: str) -> bytes:
        with self._open(key) as file:
            return file.read()

    def _read_range(self, key: str, start: int, end: int) -> bytes:
        with self._open(key) as file:
            file.seek(start)
            return file.read(end - start)

    def _delete(self, key: str) -> None:
        with self._place(key) as (folder, name), contextlib.suppress(*_MISSING):
            os.unlink(name, dir_fd=folder)
        self._remove_empty((self._root / key).parent)

    def _write(self, key: str, content: bytes, *, replace: bool) -> bool:
        with self._as_store_error(key):
            for _ in range(_WRITE_TRIES - 1):
                # A concurrent deletion may have just removed the directory, which was empty.
                with contextlib.suppress(FileNotFoundError):
                    return self._write_once(key, content, replace=replace)
            return self._write_once(key, content, replace=replace)

    def _write_once(self, key: str, content: bytes, *, replace: bool) -> bool:
        partial = f"{_PARTIAL}{secrets.token_hex(8)}"
        with self._place(key, is_made=True) as (folder, name):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with open(os.open(partial, flags, 0o666, dir_fd=folder), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                if replace:
                    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
                elif not _link(partial, name, folder):
                    return False
                os.fsync(folder)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(partial, dir_fd=folder)
        return True

    def _list(self, prefix: str) -> Sequence[ObjectInfo]:
        found = []
        base = self._root / prefix.rpartition("/")[0]
        with contextlib.suppress(FileNotFoundError), self._place(prefix) as (top, _):
            for below, folders, names, folder in os.fwalk(
                ".", dir_fd=top, onerror=_raise_unless_missing
            ):
                path = base / below
                if not folders and not names and path != self._root:
                    _remove_if_left(path)
                for name in names:
                    if name.startswith(_PARTIAL):
                        _remove_if_left(path / name)
                        continue
                    key = (path / name).relative_to(self._root).as_posix()
                    if key.startswith(prefix):
                        try:
                            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
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
    def _as_store_error(self, key: str, *, missing: str | None = None) -> Iterator[None]:
        """`missing`: the key that does not exist where the file does not."""
        try:
            yield
        except OSError as error:
            if missing is not None and isinstance(error, _MISSING):
                raise NoSuchObject(missing) from None
            raise StoreError(
                f"object store: {self._root / key}: {error.strerror}", failure_of_errno(error.errno)
            ) from error


def _open_directory(name: str, folder: int, *, is_made: bool) -> int:
    """Made where it may be, so that its entry survives a power failure."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not is_made:
            raise
    with contextlib.suppress(FileExistsError):  # by another writer
        os.mkdir(name, dir_fd=folder)
    os.fsync(folder)
    return os.open(name, flags, dir_fd=folder)


def _open_regular(name: str, folder: int) -> BinaryIO:
    """Only files are objects: the open of a pipe would wait for ever, a device has no end."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket, a link
            raise FileNotFoundError(errno.ENOENT, "no regular file", name) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no regular file", name)
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


def _link(partial: str, name: str, folder: int) -> bool:
    """False when the name is taken."""
    try:
        os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
