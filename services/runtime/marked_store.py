"""An object store that is used only while it carries its marker.

Every store that a service opens is one of these: before a call, and again whenever something was
not found, the marker must exist with the expected id. Otherwise the call raises StoreUnavailable,
whatever the store itself answered. For a store on the network a check is valid for a few seconds; a
directory is checked each time.
"""

import time
from collections.abc import AsyncIterator, Sequence

from drivetrain_schemas.object_store import MARKER_KEY, StoreFailure, marker_problem
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject, ObjectInfo, ObjectStore, Upload


class MarkedStore:
    """`inner`, guarded. `name` is its address, for errors."""

    def __init__(
        self, inner: ObjectStore, name: str, store_id: str | None, *, trusted_seconds: float = 0.0
    ) -> None:
        self._inner = inner
        self._name = name
        self._store_id = store_id
        self._trusted_seconds = trusted_seconds
        self._trusted_until = 0.0

    async def put(self, key: str, content: bytes) -> None:
        await self._check()
        await self._inner.put(key, content)

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        await self._check()
        return await self._inner.put_if_absent(key, content)

    async def get(self, key: str) -> bytes:
        await self._check()
        try:
            return await self._inner.get(key)
        except NoSuchObject:
            await self._check(is_absent=True)
            raise

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        await self._check()
        try:
            return await self._inner.get_range(key, start, end)
        except NoSuchObject:
            await self._check(is_absent=True)
            raise

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        await self._check()
        try:
            async for piece in self._inner.stream(key):
                yield piece
        except NoSuchObject:
            await self._check(is_absent=True)
            raise

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        await self._check()
        found = await self._inner.list(prefix)
        await self._check(is_absent=not found)
        return [info for info in found if info.key != MARKER_KEY]

    async def delete(self, key: str) -> None:
        await self._check()
        await self._inner.delete(key)

    async def list_uploads(self, prefix: str) -> Sequence[Upload]:
        await self._check()
        return await self._inner.list_uploads(prefix)

    async def abort(self, upload: Upload) -> None:
        await self._check()
        await self._inner.abort(upload)

    async def close(self) -> None:
        await self._inner.close()

    async def _check(self, *, is_absent: bool = False) -> None:
        """`is_absent`: the store has answered that something does not exist."""
        if not is_absent and time.monotonic() < self._trusted_until:
            return
        self._trusted_until = 0.0
        try:
            content = await self._inner.get(MARKER_KEY)
        except NoSuchObject:
            content = None
        problem = marker_problem(content, self._store_id)
        if problem is not None:
            raise StoreError(
                f"the object store {self._name} is unavailable: {problem}",
                StoreFailure.UNAVAILABLE,
            )
        self._trusted_until = time.monotonic() + self._trusted_seconds
