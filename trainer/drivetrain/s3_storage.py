"""Storage in an S3 bucket with aiobotocore, callable from any thread."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from drivetrain.directory_storage import Piece
from drivetrain.errors import StorageError
from drivetrain_schemas.object_store import StoreFailure, failure_of_code, with_fix

_PART_BYTES = 16 * 1024 * 1024  # at least 5 MiB in S3
_MAX_PARTS = 10_000


class S3Storage:
    """One call at a time."""

    def __init__(self, bucket: str, prefix: str, endpoint_url: str | None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._client: Any = None

    def put(self, key: str, data: bytes) -> None:
        self._call(key, "put_object", Key=self._prefix + key, Body=data)

    def put_pieces(self, key: str, pieces: Iterable[Piece], size_bytes: int) -> None:
        """In parts where it is large: one request takes at most 5 GiB, and stays in memory.

        What a killed process had uploaded is aborted by the platform after the end of its run.
        """
        part_bytes = max(_PART_BYTES, -(-size_bytes // _MAX_PARTS))
        if size_bytes <= part_bytes:
            self.put(key, b"".join(pieces))
            return
        place: dict[str, Any] = {"Key": self._prefix + key}
        place["UploadId"] = self._call(key, "create_multipart_upload", **place)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            for number, part in enumerate(_in_parts(pieces, part_bytes), start=1):
                answer = self._call(key, "upload_part", PartNumber=number, Body=part, **place)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            done = {"Parts": parts}
            self._call(key, "complete_multipart_upload", MultipartUpload=done, **place)
        except BaseException:
            with suppress(StorageError):
                self._call(key, "abort_multipart_upload", **place)
            raise

    def put_if_absent(self, key: str, data: bytes) -> bool:
        name = self._prefix + key
        answer = self._call(
            key, "put_object", but=("PreconditionFailed",), Key=name, Body=data, IfNoneMatch="*"
        )
        return answer is not None

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        missing = ("NoSuchKey", "404")
        # One byte more than allowed shows that the object is too large.
        span = {} if max_bytes is None else {"Range": f"bytes=0-{max_bytes}"}
        name = self._prefix + key
        answer = self._call(key, "get_object", but=(*missing, "InvalidRange"), Key=name, **span)
        if answer is None and span:  # an empty object has no range
            answer = self._call(key, "get_object", but=missing, Key=name)
        if answer is None:
            return None
        if max_bytes is not None and len(answer["Body"]) > max_bytes:
            raise StorageError(f"{key} has more than {max_bytes:,} bytes")
        return bytes(answer["Body"])

    def get_pieces(self, key: str) -> Iterator[bytes] | None:
        first = self._get_part(key, 0)
        if first is None:  # missing, or empty: an empty object has no range
            return None if self.get(key) is None else iter(())
        return self._continue(key, first)

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
        """Needed only if the process continues after using its storage."""
        if self._client is not None:
            self._loop.run_until_complete(self._client.__aexit__(None, None, None))
        self._loop.close()

    def _continue(self, key: str, part: bytes | None) -> Iterator[bytes]:
        position = 0
        while part:
            yield part
            position += len(part)
            part = self._get_part(key, position) if len(part) == _PART_BYTES else None

    def _get_part(self, key: str, start: int) -> bytes | None:
        answer = self._call(
            key,
            "get_object",
            but=("NoSuchKey", "404", "InvalidRange"),
            Key=self._prefix + key,
            Range=f"bytes={start}-{start + _PART_BYTES - 1}",
        )
        return None if answer is None else bytes(answer["Body"])

    def _call(self, key: str, operation: str, but: tuple[str, ...] = (), **arguments: Any) -> Any:
        """The response; None if it is an error with one of the codes `but`."""
        from aiohttp import ClientError as ConnectionFailed
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._lock:
                return self._loop.run_until_complete(self._ask(operation, arguments))
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in but:
                return None
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            raise StorageError(f"{key}: {error}", failure_of_code(code, status)) from error
        except (BotoCoreError, ConnectionFailed, OSError) as error:
            raise StorageError(with_fix(f"{key}: {error}"), StoreFailure.UNAVAILABLE) from error

    async def _ask(self, operation: str, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            from aiobotocore.config import AioConfig
            from aiobotocore.session import get_session

            config = AioConfig(
                connect_timeout=5,
                read_timeout=60,
                retries={"max_attempts": 3, "mode": "standard"},
                # Some S3 servers refuse checksums that are not required; manifests hold our own.
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


def _in_parts(pieces: Iterable[Piece], part_bytes: int) -> Iterator[bytes]:
    """The same bytes in parts of this size; the last one is smaller."""
    part = bytearray()
    for piece in pieces:
        part += piece
        while len(part) >= part_bytes:
            yield bytes(part[:part_bytes])
            del part[:part_bytes]
    if part:
        yield bytes(part)
