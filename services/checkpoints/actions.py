"""Actions on the object store, one function per kind of intent: read, act outside, record.

Each acts with no transaction open, then records in a transaction that locks the job's row first and
reads the current facts again: the highest fence, the checkpoint's state, whether the intent is
still the same. So every action is idempotent and may stop at any point. `Postponed` means that
something has not arrived yet; the worker handles errors of the store.
"""

from collections import Counter
from collections.abc import Sequence

from drivetrain_schemas.checkpoints import Manifest, RunResumed, SaveFailure
from drivetrain_schemas.ids import checkpoint_id_for
from services.checkpoints import files, messages, saving, store, store_checkpoints, store_intents
from services.checkpoints.core import catalogue, retention
from services.checkpoints.core.location import Location, directory_of, job_prefix, locate
from services.checkpoints.errors import Postponed
from services.checkpoints.instruments import CHECK_SECONDS, DELETED
from services.checkpoints.pruning import tidy
from services.checkpoints.reading import Reader
from services.checkpoints.recording import record_absent, record_flaw, record_good
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.store import Job
from services.checkpoints.store_checkpoints import CheckpointRow
from services.checkpoints.store_intents import Intent
from services.checkpoints.verification import Flaw, check, size_bytes
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.errors import StoreError
from services.runtime.object_store import ObjectInfo, ObjectStore
from services.runtime.transaction import Tx

log = logs.get()

# Read as soon as it is reported; a larger one is read in turn.
SMALL_BYTES = 8 * 2**20


class Actions:
    """Carries out intents."""

    def __init__(
        self, database: Database, object_store: ObjectStore, settings: CheckpointsSettings
    ) -> None:
        self._database = database
        self._object_store = object_store
        self._settings = settings
        self._clock = files.DatabaseClock()
        self.reader = Reader(database, object_store, settings)

    async def carry_out(self, intent: Intent) -> None:
        async with self._database.connection() as connection:
            job = await store.job(connection, intent.job_id)
        if job is None or job.tenant_id is None:
            raise Postponed("the job's own events have not arrived yet")
        if intent.kind == "list":
            await self._list(intent, job.tenant_id)
        elif intent.kind == "verify":
            await self._verify(intent, job.tenant_id)
        elif intent.kind == "read":
            await self.reader.read(intent, job.tenant_id)
        elif intent.kind == "restore":
            await self._restore(intent, job.tenant_id)
        elif intent.kind == "delete":
            await self._delete(intent, job.tenant_id)
        elif intent.kind == "files":
            await files.look_after(
                self._database, self._object_store, self._clock, intent, job.tenant_id
            )
        else:
            await tidy(self._database, self._object_store, intent, job.tenant_id)

    async def note_store_failure(self, intent: Intent, error: StoreError) -> None:
        """A checkpoint was written that cannot be verified, because we cannot read the store."""
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            live = await store.live_run(tx.connection, intent.job_id)
            if live is not None:
                detail = f"the checkpoints service: {error}"[:512]
                await saving.note_failure(tx, job, live[0], SaveFailure(error.failure), detail)

    async def _list(self, intent: Intent, tenant_id: str) -> None:
        """Find manifests that no report named, and good checkpoints that lost bytes."""
        found = await self._object_store.list(job_prefix(tenant_id, intent.job_id))
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            manifests = _manifests(tenant_id, intent.job_id, found)
            known = await store_checkpoints.states_of(tx.connection, manifests)
            good = await store_checkpoints.rows_in_state(tx.connection, intent.job_id, "good")
            damaged = _damaged(tenant_id, intent.job_id, found, good)
            for key in sorted((manifests - known.keys()) | damaged):
                await store_intents.want_if_unknown(tx.connection, "verify", intent.job_id, key)
            await saving.note_overdue(tx, job)
            is_live = await store.live_run(tx.connection, intent.job_id) is not None
            await files.want_look(tx.connection, intent.job_id, is_urgent=not is_live)
            if is_live:
                await store_intents.repeat(tx.connection, intent, self._settings.list_seconds)
            else:
                await store_intents.finish(tx.connection, intent)

    async def _verify(self, intent: Intent, tenant_id: str) -> None:
        location = locate(tenant_id, intent.job_id, intent.subject)
        if location is None:
            log.warning("no key of this job", job_id=intent.job_id, key=intent.subject)
            await self._drop(intent)
            return
        with CHECK_SECONDS.time():
            verdict = await check(self._object_store, tenant_id, intent.job_id, location)
        is_small = isinstance(verdict, Manifest) and size_bytes(verdict.shards) <= SMALL_BYTES
        is_read = is_small and await self._is_to_be_read(intent)
        if isinstance(verdict, Manifest) and is_read:
            verdict = await self.reader.read_small(location, verdict) or verdict
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            if not await store_intents.finish(tx.connection, intent):
                return  # it was requested again meanwhile: the verdict may be out of date
            if verdict is None:
                await record_absent(tx, job, location)
            elif isinstance(verdict, Flaw):
                await record_flaw(tx, job, location, verdict)
            elif is_read:
                await record_good(tx, job, location, verdict, is_read=True)
            else:
                await self._record_unread(tx, job, intent, location, verdict)

    async def _is_to_be_read(self, intent: Intent) -> bool:
        """A checkpoint that is recorded is read again only where a run rejected it."""
        checkpoint_id = checkpoint_id_for(intent.subject)
        async with self._database.connection() as connection:
            row = await store_checkpoints.find(connection, intent.job_id, checkpoint_id)
        return row is None or bool(intent.facts.get("is_doubted"))

    async def _record_unread(
        self, tx: Tx, job: Job, intent: Intent, location: Location, manifest: Manifest
    ) -> None:
        """Request a read of its bytes; if that takes too long, it is committed by its sizes."""
        connection, key = tx.connection, location.manifest_key
        row = await store_checkpoints.find(connection, intent.job_id, checkpoint_id_for(key))
        if row is not None and not intent.facts.get("is_doubted"):
            return
        if row is not None:
            await store_checkpoints.forget_read_shards(connection, key)  # all of it again
        await store_intents.want_if_unknown(connection, "read", intent.job_id, key)
        if row is not None:
            return
        if intent.facts.get("is_by_size"):
            await record_good(tx, job, location, manifest, is_read=False)
        else:
            seconds, facts = self._settings.commit_seconds, {"is_by_size": True}
            await store_intents.want_in(connection, "verify", intent.job_id, key, seconds, facts)

    async def _restore(self, intent: Intent, tenant_id: str) -> None:
        resumed = RunResumed.model_validate(intent.facts)
        location = locate(tenant_id, intent.job_id, resumed.manifest_key or "")
        if location is None:
            log.warning("no key of this job", job_id=intent.job_id, key=resumed.manifest_key)
            await self._drop(intent)
            return
        checkpoint_id, key = checkpoint_id_for(location.manifest_key), location.manifest_key
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            row = await store_checkpoints.find(tx.connection, intent.job_id, checkpoint_id)
            is_pending = await store_intents.is_wanted(
                tx.connection, ("verify", "read"), intent.job_id, key
            )
            if row is None:
                await store_intents.want_if_unknown(tx.connection, "verify", intent.job_id, key)
            elif await self._is_first_restore(tx, intent, resumed):
                if row.state == "good" and catalogue.may_lead(resumed.fence, job.highest_fence):
                    # The newest run continues from here, so the job's head may be here.
                    await store_checkpoints.let_lead(tx.connection, checkpoint_id)
                payload = messages.restored(row, tenant_id, resumed)
                await tx.emit(payload, tenant_id=tenant_id)
                log.info("checkpoint restored", checkpoint_id=checkpoint_id, run_id=resumed.run_id)
        if row is None:
            raise Postponed("the checkpoint is not verified yet", is_counted=not is_pending)

    async def _is_first_restore(self, tx: Tx, intent: Intent, resumed: RunResumed) -> bool:
        """A run resumes once, whatever its pods report. Finishes the intent."""
        run = await store.run_of_fence(tx.connection, intent.job_id, resumed.fence)
        if run is None:
            raise Postponed("the run that resumed is not known yet")
        if not await store_intents.finish(tx.connection, intent):
            return False
        return run.run_id == resumed.run_id and await store.set_restored(tx.connection, run)

    async def _delete(self, intent: Intent, tenant_id: str) -> None:
        row = await self._confirm_deletion(intent)
        if row is None:
            return
        location = locate(tenant_id, row.job_id, row.manifest_key)
        assert location is not None, f"{row.manifest_key} was located before it was recorded"
        # Without its manifest it is no checkpoint, so no run resumes from a half deleted one.
        await self._object_store.delete(location.manifest_key)
        for item in await self._object_store.list(location.directory):
            await self._object_store.delete(item.key)
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, row.job_id)
            if not await store_intents.finish(tx.connection, intent):
                return
            await store_checkpoints.set_state(tx.connection, row.checkpoint_id, "deleted")
            await files.want_look(tx.connection, row.job_id)
            payload = messages.deleted(row, tenant_id, retention.reason(job.policy))
            await tx.emit(payload, tenant_id=tenant_id)
        DELETED.inc()
        log.info("checkpoint deleted", checkpoint_id=row.checkpoint_id, job_id=row.job_id)

    async def _confirm_deletion(self, intent: Intent) -> CheckpointRow | None:
        """The checkpoint, if it may still be deleted: the facts may have changed.

        The state "deleting" is never reverted, because part of the checkpoint may be gone.
        """
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            row = await store_checkpoints.find(tx.connection, intent.job_id, intent.subject)
            if row is not None and row.state == "good":
                good = await store_checkpoints.good(tx.connection, job)
                expendable = retention.expendable(good, job.policy)
                if row.checkpoint_id in {one.checkpoint_id for one in expendable}:
                    await store_checkpoints.set_state(tx.connection, row.checkpoint_id, "deleting")
                    return row
            if row is None or row.state != "deleting":
                await store_intents.finish(tx.connection, intent)
                return None
            return row

    async def _drop(self, intent: Intent) -> None:
        async with self._database.transaction() as tx:
            await store_intents.finish(tx.connection, intent)


def _manifests(tenant_id: str, job_id: str, found: Sequence[ObjectInfo]) -> set[str]:
    """The keys among these that are manifests of this job."""
    return {item.key for item in found if locate(tenant_id, job_id, item.key) is not None}


def _damaged(
    tenant_id: str, job_id: str, found: Sequence[ObjectInfo], good: Sequence[CheckpointRow]
) -> set[str]:
    """The manifests of good checkpoints with fewer bytes in the listing than were verified."""
    keys = {item.key for item in found}
    num_bytes: Counter[str] = Counter()
    for item in found:
        location = directory_of(tenant_id, job_id, item.key)
        if location is not None and item.key != location.manifest_key:
            num_bytes[location.manifest_key] += item.size_bytes
    return {
        row.manifest_key
        for row in good
        if row.manifest_key not in keys or num_bytes[row.manifest_key] < row.size_bytes
    }
