"""Object storage as a port: one small protocol, behind which `stores` opens the real ones.

Keys are relative (`checkpoints/default/job_.../manifest.json`), and none is also a folder (`x` and
`x/y`). A write is complete or absent; what must be written once uses `put_if_absent`. Every other
failure is a StoreError, which describes the problem; the same call may succeed later.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

CHUNK_BYTES = 1024 * 1024


class NoSuchObject(Exception):
    """There is no object with this key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Upload:
    """The parts of an object that is not complete: of a writer that is busy or was killed."""

    key: str
    upload_id: str


class ObjectStore(Protocol):
    async def put(self, key: str, content: bytes) -> None: ...

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        """False when the key exists, also when an earlier try of this call wrote it."""

    async def get(self, key: str) -> bytes:
        """Raises NoSuchObject."""

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, fewer where the object ends before.

        There is at least one such byte. Raises NoSuchObject.
        """

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """The content in pieces of at most 1 MiB. Raises NoSuchObject."""

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        """Every object whose key begins with `prefix`, in the order of the keys."""

    async def delete(self, key: str) -> None:
        """Deleting what does not exist is not an error."""

    async def list_uploads(self, prefix: str) -> Sequence[Upload]:
        """Where objects are uploaded in parts; a directory removes partial files as it lists."""

    async def abort(self, upload: Upload) -> None:
        """Its parts are deleted. Aborting what is complete or gone is not an error."""

    async def close(self) -> None: ...
