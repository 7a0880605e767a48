"""The loop that carries out intents: several jobs side by side, one intent of a job at a time.

Intents are stored in Postgres, so nothing is lost when the process ends. A failed intent is
counted, logged and tried again with growing delays; an unavailable object store stops neither the
service nor other jobs, and no intent is dropped because of it. An intent that waits for something
that may never arrive (a report of an unknown run) is dropped after `MAX_WAITS` tries, but never a
listing or a deletion. Reading bytes has its own slots, so that large checkpoints delay nothing
else.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from drivetrain_schemas.checkpoints import SaveFailure
from services.checkpoints import pruning, store, store_intents
from services.checkpoints.actions import Actions
from services.checkpoints.errors import Postponed
from services.checkpoints.instruments import FAILING_RUNS, INTENT_FAILURES
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.store_intents import Intent
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.errors import StoreError, is_temporary
from services.runtime.object_store import ObjectStore

log = logs.get()

POLL_SECONDS = 1.0
FIRST_WAIT_SECONDS = 0.5
MAX_WAIT_SECONDS = 60.0
MAX_WAITS = 20
PENDING_SECONDS = 5.0
NUM_READERS = 2
HOUSEKEEPING_SECONDS = 30.0
# From this try on, a store that cannot be read is reported as the cause of missing checkpoints.
TRIES_BEFORE_REPORT = 3


@dataclass(slots=True)
class _Lane:
    """Slots for reads, or for everything else; `busy` holds the tasks by their jobs."""

    is_read: bool
    num_places: int
    busy: dict[str, asyncio.Task[None]] = field(default_factory=dict)


class Worker:
    """Carries out what is due. `wake` makes it check immediately."""

    def __init__(
        self, database: Database, object_store: ObjectStore, settings: CheckpointsSettings
    ) -> None:
        self._database = database
        self.actions = Actions(database, object_store, settings)
        self._lanes = (_Lane(False, settings.max_jobs_at_once), _Lane(True, NUM_READERS))
        self._awake = asyncio.Event()
        self._housekeeping_at = 0.0

    def wake(self) -> None:
        self._awake.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._awake.clear()
                await self._keep_house()
                await self._start_due()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._awake.wait()
        finally:
            tasks = self._tasks()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def drain(self) -> None:
        """Until nothing is due any more."""
        while await self._start_due() or self._tasks():
            await asyncio.gather(*self._tasks())

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for lane in self._lanes for task in lane.busy.values()]

    async def _keep_house(self) -> None:
        """Every half minute: prune, measure, and request that a checkpoint is read again."""
        if time.monotonic() < self._housekeeping_at:
            return
        self._housekeeping_at = time.monotonic() + HOUSEKEEPING_SECONDS
        try:
            await pruning.prune_rows(self._database)
            await self.actions.reader.want_reread()
            async with self._database.connection() as connection:
                failing = await store.count_failing_runs(connection)
            for reason in SaveFailure:
                FAILING_RUNS.labels(str(reason)).set(failing.get(reason, 0))
        except Exception as error:
            log.warning("housekeeping failed, tried again later", error=repr(error))

    async def _start_due(self) -> int:
        """Start what is due; returns how many. Waits while the database is unavailable."""
        return sum([await self._start_in(lane) for lane in self._lanes])

    async def _start_in(self, lane: _Lane) -> int:
        num_started = 0
        # Each time for the places left: all that is due may be of few jobs, and those are busy now.
        for _ in range(lane.num_places):
            room = lane.num_places - len(lane.busy)
            due = await self._due(lane, room) if room else []
            if not due:
                break
            for intent in due:
                lane.busy[intent.job_id] = asyncio.create_task(self._carry_out(lane, intent))
            num_started += len(due)
        return num_started

    async def _due(self, lane: _Lane, limit: int) -> list[Intent]:
        try:
            async with self._database.connection() as connection:
                return await store_intents.due_intents(
                    connection, is_read=lane.is_read, busy_jobs=lane.busy.keys(), limit=limit
                )
        except Exception as error:
            INTENT_FAILURES.labels("any").inc()
            log.warning("intents cannot be read", error=repr(error))
            return []

    async def _carry_out(self, lane: _Lane, intent: Intent) -> None:
        try:
            await self.actions.carry_out(intent)
        except Postponed as waiting:
            await self._wait(intent, waiting)
        except Exception as error:
            INTENT_FAILURES.labels(intent.kind).inc()
            if intent.tries == 0 or not is_temporary(error):
                log.warning(
                    "intent is tried again later",
                    kind=intent.kind,
                    job_id=intent.job_id,
                    subject=intent.subject,
                    tries=intent.tries,
                    error=repr(error),
                    exc_info=None if is_temporary(error) else error,
                )
            await self._postpone(intent)
            await self._report_store_failure(intent, error)
        finally:
            del lane.busy[intent.job_id]
            self._awake.set()

    async def _report_store_failure(self, intent: Intent, error: Exception) -> None:
        # A checkpoint was written; nothing is known of one where a listing is only due again.
        is_written = intent.kind == "verify" or bool(intent.facts.get("is_reported"))
        is_lasting = is_written and intent.tries >= TRIES_BEFORE_REPORT
        if is_lasting and isinstance(error, StoreError):
            with contextlib.suppress(Exception):  # reported with the next try
                await self.actions.note_store_failure(intent, error)

    async def _wait(self, intent: Intent, waiting: Postponed) -> None:
        if not waiting.is_counted:
            await self._postpone(intent, PENDING_SECONDS)
            return
        if intent.tries < MAX_WAITS or intent.kind in ("list", "delete"):
            await self._postpone(intent)
            return
        reason = str(waiting)
        log.warning("intent is dropped", kind=intent.kind, job_id=intent.job_id, reason=reason)
        with contextlib.suppress(Exception):
            async with self._database.connection() as connection:
                await store_intents.finish(connection, intent)

    async def _postpone(self, intent: Intent, seconds: float | None = None) -> None:
        """With growing delays after failures; for `seconds` where it was not a failure."""
        is_failure = seconds is None
        if seconds is None:
            seconds = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(intent.tries, 10))
        try:
            async with self._database.connection() as connection:
                await store_intents.postpone(connection, intent, seconds, is_failure=is_failure)
        except Exception as error:
            # It stays due and is tried again; the pause bounds how often.
            log.warning("intent cannot be postponed", kind=intent.kind, error=repr(error))
            await asyncio.sleep(FIRST_WAIT_SECONDS)
