"""Where checkpoints and code rest: a directory (`file://`) or any S3 (`s3://bucket/prefix`).

A small blocking protocol, because its callers are a background thread and the start of a run.
Keys are relative, with `/` between parts. A key appears whole or not at all, and survives a crash
of the machine once `put` has returned. Every failure is a StorageError.
"""

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from drivetrain.errors import StorageError


class Storage(Protocol):
    """Bytes by key. `get` finds None where nothing is, `put_if_absent` False where something is."""

    def put(self, key: str, data: bytes) -> None: ...
    def put_if_absent(self, key: str, data: bytes) -> bool: ...
    def get(self, key: str) -> bytes | None: ...
    def list(self, prefix: str = "") -> list[str]: ...
    def delete(self, key: str) -> None: ...


def open_storage(url: str, endpoint_url: str | None = None) -> Storage:
    """The storage behind a `file://` or `s3://` address."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return DirectoryStorage(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        return S3Storage(parts.netloc, parts.path.strip("/"), endpoint_url)
    raise StorageError(f"{url}: an object store is file:///directory or s3://bucket/prefix")


class DirectoryStorage:
    """One file per key. Written beside its place, synced, then renamed into it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, data: bytes) -> None:
        with _as_storage_error(key), self._written(key, data) as temporary:
            target = self._root / key
            temporary.rename(target)
            _sync_directory(target.parent)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with _as_storage_error(key), self._written(key, data) as temporary:
            target = self._root / key
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
            return True

    def get(self, key: str) -> bytes | None:
        with _as_storage_error(key):
            try:
                return (self._root / key).read_bytes()
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
            with contextlib.suppress(OSError):  # others still lie there
                path.parent.rmdir()

    @contextlib.contextmanager
    def _written(self, key: str, data: bytes) -> Iterator[Path]:
        target = self._root / key
        _make_directory(target.parent)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


def _walk(start: Path) -> Iterator[Path]:
    def complain(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for directory, _, names in os.walk(start, onerror=complain):
        yield from (Path(directory, name) for name in names)


def _make_directory(directory: Path) -> None:
    """With those above it, each as lasting as what will lie in it."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


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
        raise StorageError(f"{key}: {error}") from error


class S3Storage:
    """An S3 bucket through aiobotocore, driven from whichever thread calls, one call at a time."""

    def __init__(self, bucket: str, prefix: str, endpoint_url: str | None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._client: Any = None

    def put(self, key: str, data: bytes) -> None:
        self._call(key, "put_object", Key=self._prefix + key, Body=data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        name = self._prefix + key
        answer = self._call(
            key, "put_object", but=("PreconditionFailed",), Key=name, Body=data, IfNoneMatch="*"
        )
        return answer is not None

    def get(self, key: str) -> bytes | None:
        answer = self._call(key, "get_object", but=("NoSuchKey", "404"), Key=self._prefix + key)
        return None if answer is None else bytes(answer["Body"])

    def list(self, prefix: str = "") -> list[str]:
        keys: list[str] = []
        page: dict[str, Any] = {}
        while True:
            answer = self._call(prefix, "list_objects_v2", Prefix=self._prefix + prefix, **page)
            keys += [item["Key"].removeprefix(self._prefix) for item in answer.get("Contents", ())]
            if not answer.get("IsTruncated"):
                return sorted(keys)
            page = {"ContinuationToken": answer["NextContinuationToken"]}

    def delete(self, key: str) -> None:
        self._call(key, "delete_object", Key=self._prefix + key)

    def close(self) -> None:
        """Only for a process that outlives its storage."""
        if self._client is not None:
            self._loop.run_until_complete(self._client.__aexit__(None, None, None))
        self._loop.close()

    def _call(self, key: str, operation: str, but: tuple[str, ...] = (), **arguments: Any) -> Any:
        """The answer; None where the store answered with one of the codes `but`."""
        from aiohttp import ClientError as ConnectionFailed
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._lock:
                return self._loop.run_until_complete(self._ask(operation, arguments))
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in but:
                return None
            raise StorageError(f"{key}: {error}") from error
        except (BotoCoreError, ConnectionFailed, OSError) as error:
            raise StorageError(f"{key}: {error}") from error

    async def _ask(self, operation: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            from aiobotocore.config import AioConfig
            from aiobotocore.session import get_session

            config = AioConfig(
                connect_timeout=5,
                read_timeout=60,
                retries={"max_attempts": 3, "mode": "standard"},
                # S3s that are not Amazon's refuse checksums nobody asked for; we keep our own.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            context = get_session().create_client(
                "s3", endpoint_url=self._endpoint_url, config=config
            )
            self._client = await context.__aenter__()  # lives as long as the process
        answer = await getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        if "Body" in answer:
            async with answer["Body"] as stream:
                answer["Body"] = await stream.read()
        return answer
