"""The files of a job in the object store: new lists are announced, what no list names is deleted.

Runs while pods save. A pod uploads a blob under a name that was never used, and names it in a list
within half an hour; a name is used again only if the newest list holds it, which is never deleted.
So what was listed, and is named by no list read after that, at two looks an hour apart, is named by
no list that follows. A list that cannot be read may be of a newer version and name anything: while
there is one, nothing is deleted, for a day. Lists are written by the job's programs, so only as
many are read as are kept, one at a time.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg

from drivetrain_schemas import strict_json
from drivetrain_schemas.checkpoint_names import parse_name
from drivetrain_schemas.job_files import (
    LIST,
    MAX_LIST_BYTES,
    FileList,
    FilesSaved,
    ListOrder,
    files_directory,
    newest_lists_first,
    parse_list_key,
)
from services.checkpoints import store, store_files, store_intents
from services.checkpoints.core.files import KEPT_RESUMABLE, blobs_of, is_kept, unnamed
from services.checkpoints.core.location import job_prefix
from services.checkpoints.instruments import PRUNED
from services.checkpoints.store_intents import Intent
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import NoSuchObject, ObjectStore

log = logs.get()

UNNAMED_SECONDS = 3600.0
UNREADABLE_SECONDS = 86_400.0
LOOK_SECONDS = 300.0
BLOBS_PER_STEP = 1000
NEXT_STEP_SECONDS = 1.0
MAX_LISTS_READ = 100
MAX_CLOCK_JUMP_SECONDS = 60.0


class _Unreadable(Exception):
    """A list that may name anything."""


@dataclass(slots=True)
class _Named:
    """The blobs that lists name, the newest list, which lists are not kept or cannot be read."""

    blobs: set[str] = field(default_factory=set)
    newest: tuple[ListOrder, FileList] | None = None
    expendable: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


class DatabaseClock:
    """Compares the clock of the database with our own: an hour of it may be a jump."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    async def has_jumped(self, connection: asyncpg.Connection) -> bool:
        """Since the last call. At the first one that is not known, so it may have."""
        before = self._ahead
        self._ahead = await store_files.now(connection) - time.monotonic()
        return before is None or abs(self._ahead - before) > MAX_CLOCK_JUMP_SECONDS


async def want_look(
    connection: asyncpg.Connection, job_id: str, *, is_urgent: bool = False
) -> None:
    """Look soon: lists were written, or deleted, and with them names of blobs."""
    seconds = 0.0 if is_urgent else LOOK_SECONDS
    await store_intents.want_in(connection, "files", job_id, "", seconds)


async def look_after(
    database: Database,
    object_store: ObjectStore,
    clock: DatabaseClock,
    intent: Intent,
    tenant_id: str,
) -> None:
    """Announce the newest list, delete old ones, and what was unnamed for an hour."""
    prefix = f"{files_directory(tenant_id, intent.job_id)}/"
    # Before the lists are read: a blob that appears later is not looked at.
    keys = [item.key.removeprefix(prefix) for item in await object_store.list(prefix)]
    if not keys:
        await _repeat(database, intent, None)
        return
    async with database.transaction() as tx:
        if await clock.has_jumped(tx.connection):
            await store_files.begin_again(tx.connection)
    named = _Named()
    await _read_lists(object_store, prefix, newest_lists_first(keys), named)
    await _read_of_checkpoints(object_store, tenant_id, intent.job_id, named)
    await _announce(database, tenant_id, intent.job_id, prefix, named)
    for key in named.expendable:
        await object_store.delete(prefix + key)
    num_blobs = 0
    wait: float | None = UNNAMED_SECONDS
    if await _may_delete(database, object_store, intent.job_id, prefix, named):
        lost = unnamed(keys, named.blobs)
        num_blobs, wait = await _delete(database, object_store, intent, prefix, named, lost)
    _count(intent.job_id, len(named.expendable), num_blobs)
    await _repeat(database, intent, wait)


async def _may_delete(
    database: Database, object_store: ObjectStore, job_id: str, prefix: str, named: _Named
) -> bool:
    """Not while a list cannot be read, for a day; then it goes, or is taken to name nothing."""
    if not named.unreadable:
        return True
    async with database.transaction() as tx:
        await store_files.set_unnamed(tx.connection, job_id, named.unreadable)
        old = await store_files.unnamed_for(
            tx.connection, job_id, UNREADABLE_SECONDS, len(named.unreadable)
        )
    for key in old:
        if parse_list_key(key) is not None:
            await object_store.delete(prefix + key)
    if len(old) < len(named.unreadable):
        log.warning("files not looked after", job_id=job_id, unreadable=named.unreadable[0])
        return False
    return True


async def _delete(
    database: Database,
    object_store: ObjectStore,
    intent: Intent,
    prefix: str,
    named: _Named,
    lost: Sequence[str],
) -> tuple[int, float | None]:
    """How many blobs were deleted, and when to look again."""
    remembered = [*lost, *named.unreadable]
    async with database.transaction() as tx:
        await store_files.set_unnamed(tx.connection, intent.job_id, remembered)
        old = await store_files.unnamed_for(
            tx.connection, intent.job_id, UNNAMED_SECONDS, BLOBS_PER_STEP + len(named.unreadable)
        )
    doomed = [key for key in old if key not in named.unreadable][:BLOBS_PER_STEP]
    for key in doomed:
        await object_store.delete(prefix + key)
    left = sorted(set(lost) - set(doomed))
    async with database.transaction() as tx:
        await store_files.set_unnamed(tx.connection, intent.job_id, [*left, *named.unreadable])
    wait = NEXT_STEP_SECONDS if len(doomed) == BLOBS_PER_STEP else UNNAMED_SECONDS
    return len(doomed), wait if left else None


async def _read_lists(
    object_store: ObjectStore, prefix: str, orders: Sequence[ListOrder], named: _Named
) -> None:
    """Those that are kept, the newest first; the older ones need not be read."""
    num_resumable = 0
    for number, order in enumerate(orders):
        if num_resumable == KEPT_RESUMABLE or number == MAX_LISTS_READ:
            named.expendable += [one.name for one in orders[number:]]
            return
        try:
            files = await _read(object_store, prefix + order.name)
        except _Unreadable:
            named.unreadable.append(order.name)
            continue
        if files is None:
            continue
        if is_kept(files, is_newest=named.newest is None):
            named.blobs |= blobs_of(files)
        else:
            named.expendable.append(order.name)
        named.newest = named.newest or (order, files)
        num_resumable += files.is_resumable


async def _read_of_checkpoints(
    object_store: ObjectStore, tenant_id: str, job_id: str, named: _Named
) -> None:
    """Also of checkpoints that are not verified yet, and of saves that are not complete."""
    prefix = job_prefix(tenant_id, job_id)
    for item in await object_store.list(prefix):
        name, _, file = item.key.removeprefix(prefix).partition("/")
        if file == LIST and parse_name(name) is not None:
            try:
                files = await _read(object_store, item.key)
            except _Unreadable:
                named.unreadable.append(item.key)
                continue
            named.blobs |= set() if files is None else blobs_of(files)


async def _read(object_store: ObjectStore, key: str) -> FileList | None:
    """None where it was deleted meanwhile. Raises _Unreadable, StoreError."""
    content = bytearray()
    try:
        async for piece in object_store.stream(key):
            content += piece
            if len(content) > MAX_LIST_BYTES:
                raise _Unreadable(f"{key} has more than {MAX_LIST_BYTES} bytes")
        strict_json.check_number(content)
        return await asyncio.to_thread(FileList.model_validate_json, bytes(content))
    except NoSuchObject:
        return None
    except ValueError as error:
        raise _Unreadable(f"{key}: {str(error)[:500]}") from error


async def _announce(
    database: Database,
    tenant_id: str,
    job_id: str,
    prefix: str,
    named: _Named,
) -> None:
    """Its author is a program of the job, so what it says of itself must be true of its place."""
    if named.newest is None:
        return
    order, files = named.newest
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
