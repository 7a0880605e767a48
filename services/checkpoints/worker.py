"""The loop that carries out intents: several jobs side by side, one intent of a job at a time.

Intents stand in Postgres, so nothing is forgotten when the process ends. Whatever goes wrong with
one is counted, logged and tried again later, longer each time; an object store that is away,
unknown or damaged stops neither the service nor other jobs. What waits in vain for something that
never comes is given up after `MAX_WAITS` tries; but never a deletion, because a checkpoint of which
part may be gone has no way back.
"""

import asyncio
import contextlib

from services.checkpoints import store
from services.checkpoints.actions import Actions, Postponed
from services.checkpoints.instruments import INTENT_FAILURES
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.store import Intent
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.object_store import ObjectStore

log = logs.get()

POLL_SECONDS = 1.0
FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 60.0
MAX_WAITS = 20


class Worker:
    """Carries out what is due. `wake` tells it that something may be."""

    def __init__(
        self, database: Database, object_store: ObjectStore, settings: CheckpointsSettings
    ) -> None:
        self._database = database
        self._actions = Actions(database, object_store, settings)
        self._max_jobs_at_once = settings.max_jobs_at_once
        self._awake = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}

    def wake(self) -> None:
        self._awake.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._awake.clear()
                await self._start_due()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._awake.wait()
        finally:
            for task in self._busy.values():
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def drain(self) -> None:
        """Until nothing is due any more."""
        while await self._start_due() or self._busy:
            await asyncio.gather(*self._busy.values())

    async def _start_due(self) -> int:
        """Start what is due; returns how many. A database that is away is waited for."""
        room = self._max_jobs_at_once - len(self._busy)
        if room <= 0:
            return 0
        try:
            async with self._database.connection() as connection:
                due = await store.due_intents(connection, self._busy.keys(), room)
        except Exception as error:
            INTENT_FAILURES.labels("any").inc()
            log.warning("intents cannot be read", error=repr(error))
            return 0
        for intent in due:
            self._busy[intent.job_id] = asyncio.create_task(self._carry_out(intent))
        return len(due)

    async def _carry_out(self, intent: Intent) -> None:
        try:
            await self._actions.carry_out(intent)
        except Postponed as waiting:
            await self._wait(intent, str(waiting))
        except Exception as error:
            INTENT_FAILURES.labels(intent.kind).inc()
            log.warning(
                "intent is tried again later",
                kind=intent.kind,
                job_id=intent.job_id,
                subject=intent.subject,
                tries=intent.tries,
                exc_info=error,
            )
            await self._postpone(intent)
        finally:
            del self._busy[intent.job_id]
            self._awake.set()

    async def _wait(self, intent: Intent, reason: str) -> None:
        if intent.tries < MAX_WAITS or intent.kind == "delete":
            await self._postpone(intent)
            return
        log.warning("intent is given up", kind=intent.kind, job_id=intent.job_id, reason=reason)
        with contextlib.suppress(Exception):
            async with self._database.connection() as connection:
                await store.finish(connection, intent)

    async def _postpone(self, intent: Intent) -> None:
        seconds = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(intent.tries, 10))
        try:
            async with self._database.connection() as connection:
                await store.postpone(connection, intent, seconds, is_failure=True)
        except Exception as error:
            # It stays due and comes again; a pause keeps that from being a spin.
            log.warning("intent cannot be postponed", kind=intent.kind, error=repr(error))
            await asyncio.sleep(FIRST_WAIT_SECONDS)
