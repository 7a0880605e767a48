"""Reading the bytes of checkpoints, shard by shard, within the stated budget.

Which shards were read is kept in Postgres, so a large checkpoint continues where it was after the
end of a turn, an error or a restart. A turn ends after the shard in which its time ran out, so that
the next checkpoint has its turn. What was read at least a day ago is read again, the oldest first,
at a separate rate and only while nothing else waits to be read.
"""

import asyncio
import time

from drivetrain_schemas.checkpoints import Manifest, Shard
from drivetrain_schemas.ids import checkpoint_id_for
from services.checkpoints import store, store_checkpoints, store_intents
from services.checkpoints.core.location import Location, locate
from services.checkpoints.core.pace import Pace
from services.checkpoints.instruments import READ_BYTES
from services.checkpoints.recording import record_flaw, record_good
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.store_intents import Intent
from services.checkpoints.verification import Flaw, check, read_shard
from services.runtime.database import Database
from services.runtime.object_store import ObjectStore

TURN_SECONDS = 20.0
REREAD_AFTER_SECONDS = 24 * 3600.0


class Reader:
    """Carries out `read` intents; `read_small` is for checkpoints too small for one."""

    def __init__(
        self, database: Database, object_store: ObjectStore, settings: CheckpointsSettings
    ) -> None:
        self._database = database
        self._object_store = object_store
        self._silence_seconds = settings.silence_seconds
        self._pace = Pace(settings.read_bytes_per_second)
        self._reread_pace = Pace(settings.reread_bytes_per_second, burst_seconds=0.0)

    async def read_small(self, location: Location, manifest: Manifest) -> Flaw | None:
        """Read all of it at once."""
        for shard in manifest.shards:
            flaw = await self._read(location, shard)
            if flaw is not None:
                return flaw
        return None

    async def read(self, intent: Intent, tenant_id: str) -> None:
        """One turn at the checkpoint that the intent names."""
        location = locate(tenant_id, intent.job_id, intent.subject)
        if location is None or not await self._is_worth_reading(intent):
            await self._finish(intent, location, None)
            return
        verdict = await check(self._object_store, tenant_id, intent.job_id, location)
        if isinstance(verdict, Manifest):
            is_complete, flaw = await self._read_turn(intent, location, verdict)
            if not is_complete:
                return
            verdict = flaw or verdict
        await self._finish(intent, location, verdict)

    async def want_reread(self) -> None:
        """Request the one that was read longest ago, if the budget allows."""
        now = time.monotonic()
        if now < self._reread_pace.free_at:
            return
        async with self._database.transaction() as tx:
            if await store_intents.has_reads(tx.connection):
                return
            row = await store_checkpoints.read_longest_ago(tx.connection, REREAD_AFTER_SECONDS)
            if row is None:
                return
            await store_intents.want_if_unknown(tx.connection, "read", row.job_id, row.manifest_key)
        self._reread_pace, _ = self._reread_pace.take(row.size_bytes, now)

    async def _is_worth_reading(self, intent: Intent) -> bool:
        checkpoint_id = checkpoint_id_for(intent.subject)
        async with self._database.connection() as connection:
            row = await store_checkpoints.find(connection, intent.job_id, checkpoint_id)
        return row is None or row.state == "good"

    async def _read_turn(
        self, intent: Intent, location: Location, manifest: Manifest
    ) -> tuple[bool, Flaw | None]:
        """Whether there is a verdict, and the flaw if one was found."""
        ends_at = time.monotonic() + TURN_SECONDS
        async with self._database.connection() as connection:
            done = await store_checkpoints.read_shards(connection, location.manifest_key)
        remaining = [shard for shard in manifest.shards if shard.key not in done]
        for number, shard in enumerate(remaining, start=1):
            flaw = await self._read(location, shard)
            if flaw is not None:
                return True, flaw
            async with self._database.transaction() as tx:
                await store_checkpoints.put_read_shard(
                    tx.connection, location.manifest_key, shard.key
                )
                if time.monotonic() >= ends_at and number < len(remaining):
                    await store_intents.end_turn(tx.connection, intent)
                    return False, None
        return True, None

    async def _read(self, location: Location, shard: Shard) -> Flaw | None:
        return await read_shard(
            self._object_store, location, shard, self._silence_seconds, self._pay
        )

    async def _pay(self, num_bytes: int) -> None:
        READ_BYTES.inc(num_bytes)
        self._pace, seconds = self._pace.take(num_bytes, time.monotonic())
        await asyncio.sleep(seconds)

    async def _finish(
        self, intent: Intent, location: Location | None, verdict: Manifest | Flaw | None
    ) -> None:
        async with self._database.transaction() as tx:
            job = await store.lock_job(tx.connection, intent.job_id)
            if not await store_intents.finish(tx.connection, intent):
                return  # it was asked for again meanwhile: the verdict may be out of date
            await store_checkpoints.forget_read_shards(tx.connection, intent.subject)
            if location is None or verdict is None:
                return
            if isinstance(verdict, Flaw):
                await record_flaw(tx, job, location, verdict)
            else:
                await record_good(tx, job, location, verdict, is_read=True)
