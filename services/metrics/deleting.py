"""Deletes objects that are not needed any more, each before its row."""

from collections.abc import Awaitable, Callable, Mapping

from drivetrain_schemas.object_store import StoreFailure
from services.runtime import logs
from services.runtime.errors import StoreError
from services.runtime.object_store import ObjectStore

log = logs.get()


async def delete_objects(
    store: ObjectStore,
    keys: Mapping[int, str],
    forget: Callable[[int], Awaitable[None]] | None = None,
) -> int:
    """Delete the objects with these keys; `forget` the row with the number of each, if it has one.

    One that the store refuses to delete, such as one under a legal hold, holds up nothing else: its
    row stays for the next pass. Returns how many failed.
    """
    num_failed = 0
    for row_id, key in keys.items():
        try:
            await store.delete(key)
        except StoreError as error:
            num_failed += 1
            log.warning("object not deleted for now", key=key, error=str(error))
            if error.failure is StoreFailure.UNAVAILABLE:
                break
            continue
        if forget is not None:
            await forget(row_id)
        log.info("object deleted", key=key)
    return num_failed
