"""Whole ends of pods in the object store: read where the termination message has only a part.

A pod's programs can write there as well. So what is read counts only for the pod that it names, and
where the pod has a termination message, only if the outcome agrees.
"""

import asyncio

from pydantic import ValidationError

from drivetrain_schemas.pod_ends import MAX_EXIT_BYTES, exit_key, exits_of
from drivetrain_schemas.pods import PodExit
from services.runtime import logs
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject, ObjectStore
from services.scheduler.launchers.base import LauncherUnavailable, PodRef

log = logs.get()

READ_SECONDS = 5.0


class Ends:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def read(self, pod: PodRef) -> PodExit | None:
        """None where there is none, or none that can be read. Raises LauncherUnavailable."""
        key = exit_key(pod.job_id, pod.attempt, pod.pod_id)
        try:
            async with asyncio.timeout(READ_SECONDS):
                content = await self._read(key)
        except NoSuchObject:
            return None
        except (StoreError, TimeoutError) as error:
            raise LauncherUnavailable(f"the end of {pod.pod_id} is not read: {error}") from error
        try:
            end = PodExit.model_validate_json(content)
        except ValidationError:
            log.warning("an end in the object store is invalid and ignored", key=key)
            return None
        return end if end.pod_id == pod.pod_id else None

    async def remove(self, job_id: str) -> None:
        """Raises LauncherUnavailable."""
        try:
            for found in await self._store.list(exits_of(job_id)):
                await self._store.delete(found.key)
        except StoreError as error:
            raise LauncherUnavailable(f"ends of {job_id} are not removed: {error}") from error

    async def _read(self, key: str) -> bytes:
        content = b""
        async for piece in self._store.stream(key):
            content += piece
            if len(content) > MAX_EXIT_BYTES:
                return b""
        return content
