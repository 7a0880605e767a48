"""Upload of code: a gzipped tar, kept under the hash of its bytes.

The body streams into a temporary file of at most 64 MiB, is hashed on the way, and is checked
without being unpacked. The same bytes are stored once;
`stored_code` says how much is kept, and for how long.
"""

import asyncio
import gzip
import hashlib
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from fastapi import APIRouter, Request, Response

from drivetrain_schemas.jobs import FieldError
from services.gateway import stored_code
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core.archive import (
    MAX_UNPACKED_BYTES,
    Member,
    MemberKind,
    check_members,
)
from services.gateway.problem import Problem
from services.gateway.rest import models
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1", tags=["jobs"])

MAX_CODE_BYTES = 64 * 1024 * 1024
MEDIA_TYPES = (
    "application/gzip",
    "application/x-gzip",
    "application/octet-stream",
    "application/x-tar",
    "application/x-gtar",
)
IN_MEMORY_BYTES = 1024 * 1024
# The longest name or attribute list that one header may carry.
MAX_HEADER_BYTES = 64 * 1024


@router.post(
    "/code",
    status_code=201,
    responses={
        200: {"model": models.Code, "description": "The same bytes are kept already"},
        **answers(400, 413, 415, 422),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A gzipped tar of at most 64 MiB",
            "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(
    request: Request, response: Response, gateway: GatewayDep, caller: CallerDep
) -> models.Code:
    """Store an archive of code; the answer is the `code` of a spec."""
    content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type not in MEDIA_TYPES:
        message = f"{content_type[:80] or 'a body without a content type'} is not supported"
        error = FieldError(field="Content-Type", message=message, fix="send application/gzip")
        raise Problem(415, "unsupported_media_type", message, (error,))
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as file:
        sha256, size_bytes = await _receive(request, cast(BinaryIO, file))
        reason = await asyncio.to_thread(_check, cast(BinaryIO, file))
        if reason is not None:
            error = FieldError(
                field="(body)", message=reason, fix="pack the files with 'tar -czf', links inside"
            )
            raise Problem(422, "invalid_archive", f"the archive is refused: {reason}", (error,))
        await _take_room(gateway, caller.tenant_id, sha256, size_bytes)
        key = stored_code.key_of(caller.tenant_id, sha256)
        async with gateway.uploads_in_memory:
            file.seek(0)
            content = await asyncio.to_thread(file.read)
            is_new = await gateway.platform.object_store.put_if_absent(key, content)
            del content
    response.status_code = 201 if is_new else 200
    return models.Code(uri=f"store:{key}", sha256=sha256, size_bytes=size_bytes, is_new=is_new)


async def _take_room(gateway: Gateway, tenant_id: str, sha256: str, size_bytes: int) -> None:
    """Before the bytes are stored, so that whatever is stored is counted. Raises Problem."""
    quota = gateway.settings.code_quota_bytes
    async with gateway.platform.database.transaction() as tx:
        if await stored_code.keep(tx.connection, tenant_id, sha256):
            return
        if await stored_code.add(tx.connection, {(tenant_id, sha256): size_bytes}) > quota:
            message = f"with this archive the uploaded code is more than {quota:,} bytes"
            fix = (
                "raise DRIVETRAIN_CODE_QUOTA_BYTES of the gateway, or wait: code that no job names "
                "is deleted after a day"
            )
            error = FieldError(field="(body)", message=message, fix=fix)
            raise Problem(413, "code_quota", message, (error,))


async def _receive(request: Request, file: BinaryIO) -> tuple[str, int]:
    digest = hashlib.sha256()
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > MAX_CODE_BYTES:
            message = f"the archive is larger than {MAX_CODE_BYTES:,} bytes"
            fix = "leave out data and environments; data is read from its own location"
            error = FieldError(field="(body)", message=message, fix=fix)
            raise Problem(413, "too_large", message, (error,))
        digest.update(chunk)
        file.write(chunk)
    return digest.hexdigest(), num_bytes


def _check(file: BinaryIO) -> str | None:
    """The reason against the archive, or None."""
    file.seek(0)
    try:
        with (
            gzip.GzipFile(fileobj=file, mode="rb") as unzipped,
            tarfile.open(fileobj=cast(BinaryIO, _Bounded(unzipped)), mode="r:") as archive,
        ):
            return check_members(_members(archive))
    except RecursionError:
        # tarfile recurses for every header that only describes the next one.
        return "too many headers in a row without a member"
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, OSError, zlib.error, ValueError) as error:
        return f"not a gzipped tar, or damaged ({error})"


class _Bounded:
    """What tarfile may read of the unpacked bytes: small headers, and not past the limit.

    Without it a header that claims to be gigabytes would be read into memory.
    """

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_HEADER_BYTES:
            raise ValueError("a header of it is too long")
        return self._file.read(size)

    def seek(self, position: int) -> int:
        if position > MAX_UNPACKED_BYTES + MAX_HEADER_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()


def _members(archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive:
        kind = MemberKind.OTHER
        if info.isreg() and not info.issparse():
            kind = MemberKind.FILE
        elif info.isdir():
            kind = MemberKind.DIRECTORY
        elif info.issym():
            kind = MemberKind.SYMLINK
        elif info.islnk():
            kind = MemberKind.HARDLINK
        yield Member(info.name, kind, max(0, info.size), info.linkname)
