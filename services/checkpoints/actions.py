"""What is done at the object store, one function per kind of intent: look, act outside, record.

Each acts with no transaction open, then records in one that takes the job's row first and looks
again at what holds by now: the highest fence, the checkpoint's state, whether the intent is still
the one that was acted on. So it does no harm to act twice, or to stop anywhere in between.
`Postponed` says that something is not here yet; whatever the store raises is for the worker.
"""

import asyncio
from collections.abc import Sequence

from drivetrain_schemas.checkpoints import Manifest, RejectedReason, RunResumed
from drivetrain_schemas.ids import checkpoint_id_for
from services.checkpoints import messages, store
from services.checkpoints.core import catalogue, retention
from services.checkpoints.core.location import Location, job_prefix, locate
from services.checkpoints.instruments import COMMITTED, DELETED, REJECTED, VERIFY_SECONDS
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.store import CheckpointRow, Intent, Job
from services.checkpoints.verification import Flaw, verify
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import ObjectInfo, ObjectStore
from services.runtime.transaction import Tx

log = logs.get()


class Postponed(Exception):
    """Something that this waits for is not here yet."""


class Actions:
    """Carries out intents."""

    def __init__(
        self, database: Database, object_store: ObjectStore, settings: CheckpointsSettings
    ) -> None:
        self._database = database
        self._object_store = object_store
        self._settings = settings

    async def carry_out(self, intent: Intent) -> None:
        async with self._database.connection() as connection:
            job = await store.job(connection, intent.job_id)
        if job is None or job.tenant_id is None:
            raise Postponed("the job's own events are not here yet")
        if intent.kind == "list":
            await self._list(intent, job.tenant_id)
        elif intent.kind == "verify":
            await self._verify(intent, job.tenant_id)
        elif intent.kind == "restore":
            await self._restore(intent, job.tenant_id)
        else:
            await self._delete(intent, job.tenant_id)

    async def _list(self, intent: Intent, tenant_id: str) -> None:
        """Find manifests of which no report told, and good checkpoints that lost bytes."""
        found = await self._object_store.list(job_prefix(tenant_id, intent.job_id))
        async with self._database.transaction() as tx:
            await store.lock_job(tx.connection, intent.job_id)
            rows = await store.checkpoints_of_job(tx.connection, intent.job_id)
            for key in _to_verify(tenant_id, intent.job_id, found, rows):
                await store.want_if_unknown(tx.connection, "verify", intent.job_id, key)
            if await store.has_live_run(tx.connection, intent.job_id):
                seconds = self._settings.list_seconds
                await store.postpone(tx.connection, intent, seconds, is_failure=False)
            else:
                await store.finish(tx.connection, intent)

    async def _verify(self, intent: Intent, tenant_id: str) -> None:
        location = locate(tenant_id, intent.job_id, intent.subject)
        if location is None:
            log.warning("no key of this job", job_id=intent.job_id, key=intent.subject)
            await self._drop(intent)
            return
        with VERIFY_SECONDS.time():
            async with asyncio.timeout(self._settings.verify_timeout_seconds):
                verdict = await verify(self._object_store, tenant_id, intent.job_id, location)
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            if not await store.finish(tx.connection, intent):
                return  # it was asked for again meanwhile: the verdict may be out of date
            if isinstance(verdict, Flaw):
                await _record_flaw(tx, job, location, verdict)
            else:
                await _record_manifest(tx, job, location, verdict)

    async def _restore(self, intent: Intent, tenant_id: str) -> None:
        resumed = RunResumed.model_validate(intent.facts)
        location = locate(tenant_id, intent.job_id, resumed.manifest_key or "")
        if location is None:
            log.warning("no key of this job", job_id=intent.job_id, key=resumed.manifest_key)
            await self._drop(intent)
            return
        checkpoint_id = checkpoint_id_for(location.manifest_key)
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            row = await store.checkpoint(tx.connection, intent.job_id, checkpoint_id)
            if row is None:
                await store.want_if_unknown(
                    tx.connection, "verify", intent.job_id, location.manifest_key
                )
            elif await store.finish(tx.connection, intent):
                if row.state == "good" and catalogue.may_lead(resumed.fence, job.highest_fence):
                    # The newest run trains on from here, so the job's head may be here.
                    await store.let_lead(tx.connection, checkpoint_id)
                payload = messages.restored(row, tenant_id, resumed)
                await tx.emit(payload, tenant_id=tenant_id)
                log.info("checkpoint restored", checkpoint_id=checkpoint_id, run_id=resumed.run_id)
        if row is None:
            raise Postponed("the checkpoint is not verified yet")

    async def _delete(self, intent: Intent, tenant_id: str) -> None:
        row = await self._confirm_deletion(intent)
        if row is None:
            return
        location = locate(tenant_id, row.job_id, row.manifest_key)
        assert location is not None, f"{row.manifest_key} was located before it was recorded"
        # Without its manifest it is no checkpoint: nobody resumes from one that is half deleted.
        await self._object_store.delete(location.manifest_key)
        for item in await self._object_store.list(location.directory):
            await self._object_store.delete(item.key)
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, row.job_id)
            if not await store.finish(tx.connection, intent):
                return
            await store.set_state(tx.connection, row.checkpoint_id, "deleted")
            payload = messages.deleted(row, tenant_id, retention.reason(job.policy))
            await tx.emit(payload, tenant_id=tenant_id)
        DELETED.inc()
        log.info("checkpoint deleted", checkpoint_id=row.checkpoint_id, job_id=row.job_id)

    async def _confirm_deletion(self, intent: Intent) -> CheckpointRow | None:
        """The checkpoint, if it may still go: another may have been rejected, or this one pinned.

        Once it stands at "deleting" there is no way back, since part of it may be gone.
        """
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            row = await store.checkpoint(tx.connection, intent.job_id, intent.subject)
            if row is not None and row.state == "good":
                good = await store.good_checkpoints(tx.connection, job)
                doomed = retention.expendable(good, job.policy)
                if row.checkpoint_id in {one.checkpoint_id for one in doomed}:
                    await store.set_state(tx.connection, row.checkpoint_id, "deleting")
                    return row
            if row is None or row.state != "deleting":
                await store.finish(tx.connection, intent)
                return None
            return row

    async def _drop(self, intent: Intent) -> None:
        async with self._database.transaction() as tx:
            await store.finish(tx.connection, intent)


def _to_verify(
    tenant_id: str, job_id: str, found: Sequence[ObjectInfo], rows: Sequence[CheckpointRow]
) -> list[str]:
    """Manifests that nobody has looked at, and those of good checkpoints that lost bytes."""
    locations = [locate(tenant_id, job_id, item.key) for item in found]
    manifests = {location.manifest_key for location in locations if location is not None}
    num_bytes: dict[str, int] = {}
    for item in found:
        if item.key not in manifests:
            directory = "/".join(item.key.split("/")[:4]) + "/"
            num_bytes[directory] = num_bytes.get(directory, 0) + item.size_bytes
    known = {row.manifest_key for row in rows}
    damaged: set[str] = set()
    for row in rows:
        location = locate(tenant_id, job_id, row.manifest_key)
        if row.state == "good" and location is not None:
            is_whole = num_bytes.get(location.directory, 0) >= row.size_bytes
            if row.manifest_key not in manifests or not is_whole:
                damaged.add(row.manifest_key)
    return sorted((manifests - known) | damaged)


async def _record_manifest(tx: Tx, job: Job, location: Location, manifest: Manifest) -> None:
    """The checkpoint is good. Known ones stay what they are: a rejected one never comes back."""
    assert job.tenant_id is not None
    checkpoint_id = checkpoint_id_for(location.manifest_key)
    if await store.checkpoint(tx.connection, job.job_id, checkpoint_id) is not None:
        return
    run = await store.run_of_fence(tx.connection, job.job_id, manifest.fence)
    if run is None:
        raise Postponed("the run of this fence is not known yet")
    if run != (manifest.run_id, manifest.attempt):
        detail = f"fence {manifest.fence} was granted to {run[0]}, not to {manifest.run_id}"
        await _record_flaw(tx, job, location, Flaw(RejectedReason.STALE_FENCE, detail))
        return
    may_lead = catalogue.may_lead(manifest.fence, job.highest_fence)
    row = messages.row_of_manifest(location, manifest, may_lead=may_lead)
    await store.insert_checkpoint(tx.connection, row)
    good = await store.good_checkpoints(tx.connection, job)
    head = catalogue.latest(good)
    best = catalogue.best_first(good, job.policy.goal)[:1]
    payload = messages.committed(
        row,
        job.tenant_id,
        manifest,
        is_latest=head is not None and head.checkpoint_id == checkpoint_id,
        is_best=bool(best) and best[0].checkpoint_id == checkpoint_id,
    )
    await tx.emit(payload, tenant_id=job.tenant_id)
    for doomed in retention.expendable(good, job.policy):
        await store.want_if_unknown(tx.connection, "delete", job.job_id, doomed.checkpoint_id)
    COMMITTED.inc()
    log.info(
        "checkpoint committed",
        checkpoint_id=checkpoint_id,
        job_id=job.job_id,
        fence=row.fence,
        step=row.step,
        is_latest=payload.is_latest,
        tenant_id=job.tenant_id,
    )


async def _record_flaw(tx: Tx, job: Job, location: Location, flaw: Flaw) -> None:
    """The checkpoint is unfit, for ever; one that was good before is so no longer."""
    assert job.tenant_id is not None
    checkpoint_id = checkpoint_id_for(location.manifest_key)
    row = await store.checkpoint(tx.connection, job.job_id, checkpoint_id)
    if row is None:
        run = await store.run_of_fence(tx.connection, job.job_id, location.fence)
        if run is None:
            raise Postponed("the run of this fence is not known yet")
        row = messages.row_of_flaw(location, job.job_id, run)
        await store.insert_checkpoint(tx.connection, row)
    elif row.state == "good":
        await store.set_state(tx.connection, checkpoint_id, "rejected")
    else:
        return
    await tx.emit(messages.rejected(row, job.tenant_id, flaw), tenant_id=job.tenant_id)
    REJECTED.labels(flaw.reason).inc()
    log.warning(
        "checkpoint rejected",
        checkpoint_id=checkpoint_id,
        job_id=job.job_id,
        reason=flaw.reason,
        detail=flaw.detail,
        tenant_id=job.tenant_id,
    )
