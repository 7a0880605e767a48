"""The files of a job in the object store: new lists are announced, what no list names is deleted.

Runs while pods save. A pod uploads a blob under a name that was never used, and names it in a list
within half an hour; a name is used again only if the newest list holds it, which is never deleted.
So what was listed, and is named by no list read after that, at two looks an hour apart, is named by
no list that follows. A list that cannot be read names anything: then nothing is deleted.
"""

from collections.abc import Sequence

import asyncpg
from pydantic import ValidationError

from drivetrain_schemas.checkpoint_names import parse_name
from drivetrain_schemas.job_files import (
    LIST,
    MAX_LIST_BYTES,
    FileList,
    FilesSaved,
    ListOrder,
    files_directory,
    newest_lists_first,
)
from services.checkpoints import store, store_files, store_intents
from services.checkpoints.core.files import expendable_lists, unnamed
from services.checkpoints.core.location import job_prefix
from services.checkpoints.instruments import PRUNED
from services.checkpoints.store_intents import Intent
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import NoSuchObject, ObjectStore

log = logs.get()

UNNAMED_SECONDS = 3600.0
LOOK_SECONDS = 300.0
BLOBS_PER_STEP = 1000
NEXT_STEP_SECONDS = 1.0


class _Unreadable(Exception):
    """A list that may name anything."""


async def want_look(
    connection: asyncpg.Connection, job_id: str, *, is_urgent: bool = False
) -> None:
    """Look soon: lists were written, or deleted, and with them names of blobs."""
    seconds = 0.0 if is_urgent else LOOK_SECONDS
    await store_intents.want_in(connection, "files", job_id, "", seconds)


async def look_after(
    database: Database, object_store: ObjectStore, intent: Intent, tenant_id: str
) -> None:
    """Announce the newest list, delete old ones, and what was unnamed for an hour."""
    prefix = f"{files_directory(tenant_id, intent.job_id)}/"
    # Before the lists are read: a blob that appears later is not looked at.
    keys = [item.key.removeprefix(prefix) for item in await object_store.list(prefix)]
    if not keys:
        await _repeat(database, intent, None)
        return
    try:
        lists = await _read_lists(object_store, prefix, newest_lists_first(keys))
        of_checkpoints = await _read_of_checkpoints(object_store, tenant_id, intent.job_id)
    except _Unreadable as error:
        log.warning("files not looked after", job_id=intent.job_id, error=str(error))
        await _repeat(database, intent, UNNAMED_SECONDS)
        return
    await _announce(database, tenant_id, intent.job_id, prefix, lists)
    old = expendable_lists(lists)
    for key in old:
        await object_store.delete(prefix + key)
    kept = [files for order, files in lists if order.name not in old]
    lost = unnamed(keys, [*kept, *of_checkpoints])
    async with database.transaction() as tx:
        await store_files.set_unnamed(tx.connection, intent.job_id, lost)
        doomed = await store_files.unnamed_for(
            tx.connection, intent.job_id, UNNAMED_SECONDS, BLOBS_PER_STEP
        )
    for key in doomed:
        await object_store.delete(prefix + key)
    _count(intent.job_id, len(old), len(doomed))
    left = sorted(set(lost) - set(doomed))
    async with database.transaction() as tx:
        await store_files.set_unnamed(tx.connection, intent.job_id, left)
    wait = NEXT_STEP_SECONDS if len(doomed) == BLOBS_PER_STEP else UNNAMED_SECONDS
    await _repeat(database, intent, wait if left else None)


async def _read_lists(
    object_store: ObjectStore, prefix: str, orders: Sequence[ListOrder]
) -> list[tuple[ListOrder, FileList]]:
    read = [(order, await _read(object_store, prefix + order.name)) for order in orders]
    return [(order, files) for order, files in read if files is not None]


async def _read_of_checkpoints(
    object_store: ObjectStore, tenant_id: str, job_id: str
) -> list[FileList]:
    """Also of checkpoints that are not verified yet, and of saves that are not complete."""
    prefix = job_prefix(tenant_id, job_id)
    found = []
    for item in await object_store.list(prefix):
        name, _, file = item.key.removeprefix(prefix).partition("/")
        if file == LIST and parse_name(name) is not None:
            files = await _read(object_store, item.key)
            found += [files] if files is not None else []
    return found


async def _read(object_store: ObjectStore, key: str) -> FileList | None:
    """None where it was deleted meanwhile. Raises _Unreadable, StoreError."""
    content = bytearray()
    try:
        async for piece in object_store.stream(key):
            content += piece
            if len(content) > MAX_LIST_BYTES:
                raise _Unreadable(f"{key} has more than {MAX_LIST_BYTES} bytes")
        return FileList.model_validate_json(bytes(content))
    except NoSuchObject:
        return None
    except ValidationError as error:
        raise _Unreadable(f"{key}: {error.errors()[0]['msg']}") from error


async def _announce(
    database: Database,
    tenant_id: str,
    job_id: str,
    prefix: str,
    lists: Sequence[tuple[ListOrder, FileList]],
) -> None:
    """Its author is a program of the job, so what it says of itself must be true of its place."""
    if not lists:
        return
    order, files = lists[0]
    if (files.tenant_id, files.job_id, files.fence) != (tenant_id, job_id, order.fence):
        return
    async with database.transaction() as tx:
        await store.lock_job(tx.connection, job_id)
        run = await store.run_of_fence(tx.connection, job_id, order.fence)
        if run is None or (run.run_id, run.attempt) != (files.run_id, files.attempt):
            return
        if await store_files.set_newest_list(tx.connection, job_id, order.name):
            payload = FilesSaved(
                tenant_id=tenant_id,
                job_id=job_id,
                run_id=run.run_id,
                attempt=run.attempt,
                fence=order.fence,
                list_key=prefix + order.name,
                files=files.summary,
            )
            await tx.emit(payload, tenant_id=tenant_id)
            log.info("files saved", job_id=job_id, num_files=files.summary.num_files)


async def _repeat(database: Database, intent: Intent, seconds: float | None) -> None:
    async with database.transaction() as tx:
        if seconds is None:
            await store_intents.finish(tx.connection, intent)
        else:
            await store_intents.repeat(tx.connection, intent, seconds)


def _count(job_id: str, num_lists: int, num_blobs: int) -> None:
    PRUNED.labels("file_lists").inc(num_lists)
    PRUNED.labels("file_blobs").inc(num_blobs)
    if num_lists or num_blobs:
        log.info("old files removed", job_id=job_id, num_lists=num_lists, num_blobs=num_blobs)
