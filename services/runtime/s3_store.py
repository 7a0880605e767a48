"""Any S3 with aiobotocore. Credentials come from the usual sources (`AWS_*`, profile, role).

Write-once is a conditional put (`If-None-Match: *`). Manifests hold our own SHA-256, so the
client's extra checksums, which some S3 servers refuse, are sent only where they are required.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from aiohttp import ClientPayloadError
from botocore.exceptions import BotoCoreError, ClientError

from drivetrain_schemas.object_store import StoreFailure, failure_of_code, with_fix
from services.runtime.errors import StoreError
from services.runtime.object_store import CHUNK_BYTES, NoSuchObject, ObjectInfo, Upload

_MISSING = ("NoSuchKey", "404", "NotFound")
_UNAVAILABLE = StoreFailure.UNAVAILABLE
_TAKEN = ("PreconditionFailed", "412")


class S3Store:
    def __init__(self, bucket: str, prefix: str, endpoint_url: str | None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint_url = endpoint_url
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._client: Any = None

    async def put(self, key: str, content: bytes) -> None:
        await self._call("put_object", Key=self._prefix + key, Body=content)

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        answer = await self._call(
            "put_object", Key=self._prefix + key, Body=content, IfNoneMatch="*", allow=_TAKEN
        )
        return answer is not None

    async def get(self, key: str) -> bytes:
        return b"".join([piece async for piece in self.stream(key)])

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        span = f"bytes={start}-{end - 1}"
        return b"".join([piece async for piece in self._pieces(key, Range=span)])

    def stream(self, key: str) -> AsyncIterator[bytes]:
        return self._pieces(key)

    async def _pieces(self, key: str, **arguments: str) -> AsyncIterator[bytes]:
        answer = await self._call("get_object", Key=self._prefix + key, allow=_MISSING, **arguments)
        if answer is None:
            raise NoSuchObject(key)
        try:
            async with answer["Body"] as body:
                async for piece in body.iter_chunks(CHUNK_BYTES):
                    yield piece
        except (BotoCoreError, ClientPayloadError, OSError) as error:
            raise StoreError(f"object store: {key}: {error!r}", _UNAVAILABLE) from error

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        found: list[ObjectInfo] = []
        token: dict[str, Any] = {}
        while True:
            answer = await self._call("list_objects_v2", Prefix=self._prefix + prefix, **token)
            for item in answer.get("Contents", ()):
                key = str(item["Key"]).removeprefix(self._prefix)
                found.append(ObjectInfo(key, int(item["Size"])))
            if not answer.get("IsTruncated"):
                return found
            token = {"ContinuationToken": answer["NextContinuationToken"]}

    async def delete(self, key: str) -> None:
        await self._call("delete_object", Key=self._prefix + key, allow=_MISSING)

    async def list_uploads(self, prefix: str) -> Sequence[Upload]:
        found: list[Upload] = []
        page: dict[str, Any] = {}
        while True:
            # Not every server has this, and not every key may: then a rule of the bucket is needed.
            answer = await self._call(
                "list_multipart_uploads",
                Prefix=self._prefix + prefix,
                allow=("AccessDenied", "NotImplemented"),
                **page,
            )
            if answer is None:
                return ()
            for item in answer.get("Uploads", ()):
                key = str(item["Key"]).removeprefix(self._prefix)
                found.append(Upload(key, str(item["UploadId"])))
            if not answer.get("IsTruncated"):
                return found
            page = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer["NextUploadIdMarker"],
            }

    async def abort(self, upload: Upload) -> None:
        await self._call(
            "abort_multipart_upload",
            Key=self._prefix + upload.key,
            UploadId=upload.upload_id,
            allow=("NoSuchUpload", *_MISSING),
        )

    async def close(self) -> None:
        await self._stack.aclose()
        self._client = None

    async def _call(self, operation: str, allow: tuple[str, ...] = (), **arguments: Any) -> Any:
        """One request; None where the answer is an error that `allow` names."""
        client = await self._connected()
        try:
            return await getattr(client, operation)(Bucket=self._bucket, **arguments)
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            if code in allow:
                return None
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            raise StoreError(f"object store: {error}", failure_of_code(code, status)) from error
        except (BotoCoreError, OSError, TimeoutError) as error:
            problem = with_fix(f"object store: {operation}: {error!r}")
            raise StoreError(problem, _UNAVAILABLE) from error

    async def _connected(self) -> Any:
        async with self._lock:
            if self._client is None:
                config = AioConfig(
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    connect_timeout=5,
                    read_timeout=60,
                    retries={"max_attempts": 3, "mode": "standard"},
                    s3={"addressing_style": "path"} if self._endpoint_url else {},
                )
                self._client = await self._stack.enter_async_context(
                    get_session().create_client(
                        "s3", endpoint_url=self._endpoint_url, config=config
                    )
                )
            return self._client
