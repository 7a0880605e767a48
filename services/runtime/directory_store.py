"""The object store of one machine: a directory. Durable: fsync, rename, fsync of the directory."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from services.runtime.errors import TemporaryError
from services.runtime.object_store import CHUNK_BYTES, NoSuchObject, ObjectInfo

_PARTIAL = ".partial-"
_LEFT_SECONDS = 24 * 3600


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, key, content, replace=True)

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        return await asyncio.to_thread(self._write, key, content, replace=False)

    async def get(self, key: str) -> bytes:
        try:
            return await asyncio.to_thread(self._path(key).read_bytes)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NoSuchObject(key) from None

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        try:
            file = await asyncio.to_thread(self._path(key).open, "rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NoSuchObject(key) from None
        with file:
            while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield piece

    async def size(self, key: str) -> int:
        path = self._path(key)
        if not await asyncio.to_thread(path.is_file):
            raise NoSuchObject(key)
        return path.stat().st_size

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        return await asyncio.to_thread(self._list, prefix)

    async def delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            await asyncio.to_thread(self._path(key).unlink)

    async def close(self) -> None:
        return None

    def _path(self, key: str) -> Path:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} leaves the object store: keys are relative, without ..")
        return self._root / key

    def _write(self, key: str, content: bytes, *, replace: bool) -> bool:
        path = self._path(key)
        partial = path.parent / f"{_PARTIAL}{secrets.token_hex(8)}"
        try:
            _make_directory(path.parent)
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                partial.rename(path)
            elif not _link(partial, path):
                return False
            _sync_directory(path.parent)
        except OSError as error:
            raise TemporaryError(f"{path}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        return True

    def _list(self, prefix: str) -> Sequence[ObjectInfo]:
        base = self._path(prefix.rpartition("/")[0])
        found = []
        for folder, _, names in os.walk(base):
            for name in names:
                path = Path(folder, name)
                if name.startswith(_PARTIAL):
                    _remove_if_left(path)
                    continue
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    try:
                        found.append(ObjectInfo(key, path.stat().st_size))
                    except FileNotFoundError:
                        continue  # deleted meanwhile
        return sorted(found, key=lambda item: item.key)


def _remove_if_left(partial: Path) -> None:
    """A writer that was killed leaves its partial file; no living one takes that long."""
    with contextlib.suppress(OSError):
        if time.time() - partial.stat().st_mtime > _LEFT_SECONDS:
            partial.unlink()


def _make_directory(path: Path) -> None:
    """With its parents; each new entry outlives a power failure."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
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
