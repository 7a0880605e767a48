"""What is removed automatically, and when. Everything in bounded steps, and counted.

| what | kept for | why so long |
|---|---|---|
| rows of deleted checkpoints | 7 days | longer than any report or listing may still name one |
| files of rejected checkpoints | 7 days | to be looked at; never while their run lives |
| unfinished saves, incomplete uploads | 1 hour after their run ended | then its pods are gone |
| rows of ended runs | 30 days | a manifest names the run that wrote it |
| partial files, empty directories of the directory store | 1 day | by the store, as it lists |

What a live run may still write to is never touched. Rows of jobs stay: they hold the highest fence
and the policy of a job that may run again.
"""

from collections.abc import Collection, Mapping, Sequence

from services.checkpoints import files, messages, store, store_checkpoints, store_intents
from services.checkpoints.core.location import Location, directory_of, job_prefix, locate
from services.checkpoints.instruments import DELETED, PRUNED
from services.checkpoints.store_checkpoints import CheckpointRow
from services.checkpoints.store_intents import Intent
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import ObjectInfo, ObjectStore, Upload

log = logs.get()

DELETED_KEPT_SECONDS = 7 * 24 * 3600.0
REJECTED_KEPT_SECONDS = 7 * 24 * 3600.0
UNFINISHED_KEPT_SECONDS = 3600.0
RUNS_KEPT_SECONDS = 30 * 24 * 3600.0
ROWS_PER_STEP = 500
OBJECTS_PER_STEP = 1000
NEXT_STEP_SECONDS = 1.0


async def prune_rows(database: Database) -> None:
    """One step; what is left is for the next."""
    async with database.transaction() as tx:
        num_checkpoints = await store_checkpoints.prune_deleted(
            tx.connection, DELETED_KEPT_SECONDS, ROWS_PER_STEP
        )
        num_runs = await store.prune_runs(tx.connection, RUNS_KEPT_SECONDS, ROWS_PER_STEP)
    PRUNED.labels("checkpoint_rows").inc(num_checkpoints)
    PRUNED.labels("run_rows").inc(num_runs)
    if num_checkpoints or num_runs:
        log.info("rows pruned", num_checkpoints=num_checkpoints, num_runs=num_runs)


async def tidy(
    database: Database, object_store: ObjectStore, intent: Intent, tenant_id: str
) -> None:
    """Remove the unfinished saves of a job's ended runs, and its checkpoints rejected long ago."""
    job_id = intent.job_id
    found = await object_store.list(job_prefix(tenant_id, job_id))
    unfinished = _unfinished(tenant_id, job_id, found)
    uploads = await object_store.list_uploads(job_prefix(tenant_id, job_id))
    located = [(directory_of(tenant_id, job_id, one.key), one) for one in uploads]
    uploading = [(location, one) for location, one in located if location is not None]
    async with database.connection() as connection:
        rejected = await store_checkpoints.rejected_long_ago(
            connection, job_id, REJECTED_KEPT_SECONDS
        )
        fences = {one.fence for one in unfinished} | {row.fence for row, _ in rejected}
        fences |= {location.fence for location, _ in uploading}
        ages = await store.run_ages(connection, job_id, fences)
        states = await store_checkpoints.states_of(
            connection, [one.manifest_key for one in unfinished]
        )
    waits = [
        _unfinished_wait(one, ages) if states.get(one.manifest_key) != "good" else None
        for one in unfinished
    ]
    doomed = {one.directory for one, wait in zip(unfinished, waits, strict=True) if wait == 0}
    keys = _keys_below(tenant_id, job_id, found, doomed)
    if keys:
        async with database.transaction() as tx:  # first: the next try may find nothing to delete
            await files.want_look(tx.connection, job_id)
    await _delete_unfinished(object_store, keys[:OBJECTS_PER_STEP])
    waits += await _abort(object_store, uploading, ages)
    later = [wait for wait in waits if wait] + [NEXT_STEP_SECONDS] * (len(keys) > OBJECTS_PER_STEP)
    for row, seconds in rejected:
        is_live = row.fence in ages and ages[row.fence] is None
        if seconds <= 0 and not is_live:
            await _delete_rejected(database, object_store, row, tenant_id)
        else:
            later.append(max(seconds, UNFINISHED_KEPT_SECONDS))
    async with database.transaction() as tx:
        if later:
            await store_intents.postpone(tx.connection, intent, min(later), is_failure=False)
        else:
            await store_intents.finish(tx.connection, intent)


def _unfinished(tenant_id: str, job_id: str, found: Sequence[ObjectInfo]) -> list[Location]:
    """Directories of saves that have no manifest."""
    locations = {directory_of(tenant_id, job_id, item.key) for item in found}
    keys = {item.key for item in found}
    return [one for one in locations if one is not None and one.manifest_key not in keys]


def _unfinished_wait(save: Location, ages: Mapping[int, float | None]) -> float | None:
    """The seconds until it may be removed; None where its run is live or unknown."""
    age = ages.get(save.fence)
    return None if age is None else max(0.0, UNFINISHED_KEPT_SECONDS - age)


def _keys_below(
    tenant_id: str, job_id: str, found: Sequence[ObjectInfo], directories: Collection[str]
) -> list[str]:
    located = [(directory_of(tenant_id, job_id, item.key), item.key) for item in found]
    return [key for one, key in located if one is not None and one.directory in directories]


async def _abort(
    object_store: ObjectStore,
    uploads: Sequence[tuple[Location, Upload]],
    ages: Mapping[int, float | None],
) -> list[float | None]:
    """What a killed writer had uploaded of a shard. Returns how long the others are kept."""
    waits = [_unfinished_wait(location, ages) for location, _ in uploads]
    doomed = [one for (_, one), wait in zip(uploads, waits, strict=True) if wait == 0]
    for upload in doomed[:OBJECTS_PER_STEP]:
        await object_store.abort(upload)
    if doomed:
        PRUNED.labels("incomplete_uploads").inc(len(doomed[:OBJECTS_PER_STEP]))
        log.info("incomplete uploads aborted", num_uploads=len(doomed[:OBJECTS_PER_STEP]))
    return [*waits, *[NEXT_STEP_SECONDS] * (len(doomed) > OBJECTS_PER_STEP)]


async def _delete_unfinished(object_store: ObjectStore, keys: Sequence[str]) -> None:
    for key in keys:
        await object_store.delete(key)
    if keys:
        PRUNED.labels("unfinished_files").inc(len(keys))
        log.info("files of unfinished saves removed", num_files=len(keys))


async def _delete_rejected(
    database: Database, object_store: ObjectStore, row: CheckpointRow, tenant_id: str
) -> None:
    location = locate(tenant_id, row.job_id, row.manifest_key)
    assert location is not None, f"{row.manifest_key} was located before it was recorded"
    await object_store.delete(location.manifest_key)
    for item in await object_store.list(location.directory):
        await object_store.delete(item.key)
    async with database.transaction() as tx:
        await store.lock_job(tx.connection, row.job_id)
        await store_checkpoints.set_state(tx.connection, row.checkpoint_id, "deleted")
        await files.want_look(tx.connection, row.job_id)
        payload = messages.deleted(row, tenant_id, "it was rejected 7 days ago")
        await tx.emit(payload, tenant_id=tenant_id)
    PRUNED.labels("rejected_checkpoints").inc()
    DELETED.inc()
    log.info("rejected checkpoint removed", checkpoint_id=row.checkpoint_id, job_id=row.job_id)
