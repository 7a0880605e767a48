"""The object store of one machine: a directory. Durable: fsync, rename, fsync of the directory."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from services.runtime.errors import TemporaryError
from services.runtime.object_store import CHUNK_BYTES, NoSuchObject, ObjectInfo

_PARTIAL = ".partial-"


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
        if not path.is_file():
            raise NoSuchObject(key)
        return path.stat().st_size

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        return await asyncio.to_thread(self._list, prefix)

    async def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    async def close(self) -> None:
        return None

    def _path(self, key: str) -> Path:
        assert not key.startswith("/"), f"{key!r} is not relative"
        assert ".." not in key.split("/"), f"{key!r} leaves the store"
        return self._root / key

    def _write(self, key: str, content: bytes, *, replace: bool) -> bool:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.parent / f"{_PARTIAL}{secrets.token_hex(8)}"
            try:
                with partial.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                if replace:
                    partial.rename(path)
                else:
                    os.link(partial, path)
            except FileExistsError:
                return False
            finally:
                partial.unlink(missing_ok=True)
            _sync_directory(path.parent)
        except OSError as error:
            raise TemporaryError(f"{path}: {error.strerror}") from error
        return True

    def _list(self, prefix: str) -> Sequence[ObjectInfo]:
        base = self._root / prefix.rpartition("/")[0]
        found = []
        for folder, _, names in os.walk(base):
            for name in names:
                path = Path(folder, name)
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix) and not name.startswith(_PARTIAL):
                    try:
                        found.append(ObjectInfo(key, path.stat().st_size))
                    except FileNotFoundError:
                        continue  # deleted meanwhile
        return sorted(found, key=lambda item: item.key)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
