"""Where checkpoints and code are stored: a directory (`file://`) or any S3 (`s3://bucket/prefix`).

A small blocking protocol, because its callers are a background thread and the start of a run.
Keys are relative, with `/` between parts. A key appears whole or not at all, and survives a crash
of the machine once `put` has returned. Every failure is a StorageError.

A store is used only while it carries its marker (docs/architecture.md, rule 10): without it every
call raises, so that a directory which was moved away is never taken for an empty one.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from drivetrain.directory_storage import DirectoryStorage, Piece
from drivetrain.errors import StorageError
from drivetrain.s3_storage import S3Storage
from drivetrain_schemas.object_store import (
    MARKER_KEY,
    StoreFailure,
    marker_problem,
    new_marker,
)

_TRUSTED_SECONDS = 10.0


class Storage(Protocol):
    """Bytes by key. `get` finds None where nothing is, `put_if_absent` False where something is.

    `get` reads regular files only, and fails for more than `max_bytes`. What is large is written
    and read in pieces, of which few are in memory; those to write may be iterated again.
    """

    def put(self, key: str, data: bytes) -> None: ...
    def put_pieces(self, key: str, pieces: Iterable[Piece], size_bytes: int) -> None: ...
    def put_if_absent(self, key: str, data: bytes) -> bool: ...
    def get(self, key: str, max_bytes: int | None = None) -> bytes | None: ...
    def get_pieces(self, key: str) -> Iterator[bytes] | None: ...
    def list(self, prefix: str = "") -> list[str]: ...
    def delete(self, key: str) -> None: ...


def open_storage(
    url: str, endpoint_url: str | None = None, *, directory: str = "", store_id: str | None = None
) -> "MarkedStorage":
    """What is below `directory` in the store at this address. `store_id` None: any store."""
    inner = open_unmarked(url, endpoint_url)
    trusted_seconds = _TRUSTED_SECONDS if isinstance(inner, S3Storage) else 0.0
    return MarkedStorage(inner, url, directory, store_id, trusted_seconds)


def create_storage(root: Path) -> "MarkedStorage":
    """A store in a directory of our own, with its marker; it may exist already."""
    inner = DirectoryStorage(root)
    inner.create_root()
    inner.put_if_absent(MARKER_KEY, new_marker().model_dump_json().encode())
    return MarkedStorage(inner, root.as_uri(), "", None, 0.0)


def open_unmarked(url: str, endpoint_url: str | None = None) -> DirectoryStorage | S3Storage:
    """A place that need not be a store of a platform, such as one that holds a job's code."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return DirectoryStorage(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        return S3Storage(parts.netloc, parts.path.strip("/"), endpoint_url)
    raise StorageError(f"{url}: an object store is file:///directory or s3://bucket/prefix")


class MarkedStorage:
    """`inner`, used only while its marker is there; keys are relative to `directory` in it.

    A store on the network is believed for a few seconds, except that something is absent.
    """

    def __init__(
        self,
        inner: DirectoryStorage | S3Storage,
        name: str,
        directory: str,
        store_id: str | None,
        trusted_seconds: float,
    ) -> None:
        self._inner = inner
        self._name = name
        self._prefix = f"{directory.strip('/')}/" if directory.strip("/") else ""
        self._store_id = store_id
        self._trusted_seconds = trusted_seconds
        self._trusted_until = 0.0

    def put(self, key: str, data: bytes) -> None:
        self._check()
        self._inner.put(self._prefix + key, data)

    def put_pieces(self, key: str, pieces: Iterable[Piece], size_bytes: int) -> None:
        self._check()
        self._inner.put_pieces(self._prefix + key, pieces, size_bytes)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        self._check()
        return self._inner.put_if_absent(self._prefix + key, data)

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        self._check()
        data = self._inner.get(self._prefix + key, max_bytes)
        if data is None:
            self._check(is_absent=True)
        return data

    def get_pieces(self, key: str) -> Iterator[bytes] | None:
        self._check()
        pieces = self._inner.get_pieces(self._prefix + key)
        if pieces is None:
            self._check(is_absent=True)
        return pieces

    def list(self, prefix: str = "") -> list[str]:
        self._check()
        found = self._inner.list(self._prefix + prefix)
        self._check(is_absent=not found)
        return [key.removeprefix(self._prefix) for key in found if key != MARKER_KEY]

    def delete(self, key: str) -> None:
        self._check()
        self._inner.delete(self._prefix + key)

    def close(self) -> None:
        """Only for a process that outlives its storage."""
        self._inner.close()

    def _check(self, *, is_absent: bool = False) -> None:
        """`is_absent`: the store has answered that something is not there."""
        if not is_absent and time.monotonic() < self._trusted_until:
            return
        self._trusted_until = 0.0
        problem = marker_problem(self._inner.get(MARKER_KEY), self._store_id)
        if problem is not None:
            raise StorageError(
                f"the object store {self._name} is unavailable: {problem}",
                StoreFailure.UNAVAILABLE,
            )
        self._trusted_until = time.monotonic() + self._trusted_seconds
