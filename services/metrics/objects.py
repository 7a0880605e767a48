"""Passes over stored objects: one process at a time, each object read back once it is written, and
deleted before its row."""

from collections.abc import Awaitable, Callable, Mapping

from drivetrain_schemas.object_store import StoreFailure
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject, ObjectStore

log = logs.get()

_LOCK = "select pg_try_advisory_lock(hashtextextended(current_schema() || $1, 0))"


async def alone(database: Database, name: str, work: Callable[[], Awaitable[None]]) -> bool:
    """Do this pass, unless another process is in the middle of one: then False."""
    connection = await database.dedicated_connection()
    try:
        is_ours: bool = await connection.fetchval(_LOCK, f"/{name}")
        if is_ours:
            await work()
        return is_ours
    finally:
        await connection.close()


async def write(store: ObjectStore, key: str, content: bytes) -> None:
    """Raises StoreError where it cannot be read back."""
    await store.put_if_absent(key, content)
    try:
        is_same = await store.get(key) == content
    except NoSuchObject:
        is_same = False
    if not is_same:
        raise StoreError(f"the object store: {key} is not what was written")


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
