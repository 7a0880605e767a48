"""Object storage: a directory on one machine, or any S3, behind one small protocol.

Keys are relative (`checkpoints/default/job_.../manifest.json`), and none is also a folder (`x` and
`x/y`). A write is whole or not there; what must be written once uses `put_if_absent`. Everything
that may go through later is a TemporaryError.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from services.runtime.errors import ConfigurationError

CHUNK_BYTES = 1024 * 1024


class NoSuchObject(Exception):
    """There is nothing under this key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size_bytes: int


class ObjectStore(Protocol):
    async def put(self, key: str, content: bytes) -> None: ...

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        """False when the key is taken, be it by a try of this very call whose answer was lost."""

    async def get(self, key: str) -> bytes:
        """Raises NoSuchObject."""

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """The content in pieces of at most 1 MiB. Raises NoSuchObject."""

    async def size(self, key: str) -> int:
        """In bytes. Raises NoSuchObject."""

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        """Every object whose key begins with `prefix`, in the order of the keys."""

    async def delete(self, key: str) -> None:
        """Deleting what is not there is no error."""

    async def close(self) -> None: ...


def open_object_store(url: str, endpoint_url: str | None = None) -> ObjectStore:
    """`file:///directory` or `s3://bucket/prefix`. Raises ConfigurationError."""
    from services.runtime.directory_store import DirectoryStore
    from services.runtime.s3_store import S3Store

    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(parts.netloc, parts.path.strip("/"), endpoint_url)
    raise ConfigurationError(
        f"DRIVETRAIN_OBJECT_STORE_URL: {url!r}: write file:///directory or s3://bucket/prefix"
    )
