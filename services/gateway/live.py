"""The live stream: one follower of the timeline per process, and its listeners.

The follower reads the timeline table by cursor; handlers wake it, and it polls as well. Each
listener has a bounded queue of messages. One that is too slow is dropped and resumes from its last
cursor when it reconnects. Progress is sent at most once a second and carries no id, so that it
never moves a reader's cursor.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from drivetrain_schemas.redaction import plain
from services.gateway import queries
from services.gateway.core.narration import narrate
from services.gateway.core.progress import eta_seconds, steps_per_second
from services.gateway.core.shared import SHARED_TYPES
from services.gateway.instruments import STREAM_CLIENTS, STREAM_DROPPED
from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform

log = logs.get()

POLL_SECONDS = 0.5
PROGRESS_SECONDS = 1.0
RETRY_SECONDS = 1.0
QUEUE_MESSAGES = 512
PAGE_ROWS = 500
MAX_LIVE_JOBS = 2000
MAX_LISTENERS = 500


@dataclass(frozen=True, slots=True)
class Message:
    """One event of the stream; `cursor` is None for what is not in the timeline.

    `tenant_id`: who may see it; None for what holds nothing of any tenant.
    """

    type: str
    data: dict[str, Any]
    cursor: int | None = None
    job_id: str | None = None
    tenant_id: str | None = None


@dataclass(slots=True, eq=False)
class Listener:
    """One open stream. `queue` ends with None when the listener is dropped."""

    tenant_id: str
    job_id: str | None
    generation: str
    # Rows up to here are not in the queue: the listener reads them from the table.
    cursor: int
    queue: asyncio.Queue[Message | None] = field(
        default_factory=lambda: asyncio.Queue(QUEUE_MESSAGES)
    )
    is_dropped: bool = False

    def offer(self, message: Message) -> None:
        if self.is_dropped or (self.job_id is not None and self.job_id != message.job_id):
            return  # hints name no job, and are not sent to listeners of one job
        if message.tenant_id not in (None, self.tenant_id):
            return
        if message.cursor is None and self.queue.qsize() > QUEUE_MESSAGES // 2:
            return
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            STREAM_DROPPED.inc()
            self.drop()

    def drop(self) -> None:
        self.is_dropped = True
        with contextlib.suppress(asyncio.QueueFull):
            self.queue.put_nowait(None)


class TooManyListeners(Exception):
    """The limit of open streams of this process is reached."""


class Live:
    """The follower, and what waits for the read model to change."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._moved = asyncio.Event()
        self._began = asyncio.Event()
        self._generation = ""
        self._cursor = 0
        self._progress: dict[str, tuple[Any, ...]] = {}

    def wake(self) -> None:
        """The read model has changed."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def announce(self, type_name: str) -> None:
        """Something outside the timeline changed (`submitted`, `parked`): a hint, not stored."""
        self._hand_out(Message(type_name, {}))
        self.wake()

    async def moved(self, seconds: float) -> None:
        """Wait for the next change, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._moved.wait()

    async def follow(self, platform: Platform) -> None:
        """The service's task: read what is new and hand it out, until cancelled."""
        progress_at = 0.0
        try:
            while True:
                try:
                    await self._read_timeline(platform)
                    now = platform.clock.monotonic()
                    if self._listeners and now - progress_at >= PROGRESS_SECONDS:
                        progress_at = now
                        await self._read_progress(platform)
                except Exception as error:
                    if not is_temporary(error):
                        raise
                    log.warning("live stream waits for Postgres", error=repr(error))
                    await platform.clock.sleep(RETRY_SECONDS)
                await self.moved(POLL_SECONDS)
        finally:
            for listener in tuple(self._listeners):
                listener.drop()

    async def began(self) -> None:
        """Wait until the follower has read the head of the timeline."""
        await self._began.wait()

    @contextlib.contextmanager
    def listening(self, tenant_id: str, job_id: str | None) -> Iterator[Listener]:
        """A listener for the tenant's rows behind the follower's cursor.

        Raises TooManyListeners.
        """
        if len(self._listeners) >= MAX_LISTENERS:
            raise TooManyListeners
        listener = Listener(tenant_id, job_id, self._generation, self._cursor)
        self._listeners.add(listener)
        STREAM_CLIENTS.set(len(self._listeners))
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            STREAM_CLIENTS.set(len(self._listeners))

    async def _read_timeline(self, platform: Platform) -> None:
        async with platform.database.connection() as connection:
            generation, head = await queries.timeline.head(connection)
            if generation != self._generation:
                self._begin_generation(generation, head)
            if not self._listeners:
                self._cursor = head
            while self._cursor < head:
                rows = await queries.timeline.of_all(connection, self._cursor, head, PAGE_ROWS)
                for row in rows:
                    self._hand_out(timeline_message(row))
                self._cursor = rows[-1]["cursor"] if len(rows) == PAGE_ROWS else head

    def _begin_generation(self, generation: str, head: int) -> None:
        """The read model was rebuilt: older cursors are no longer valid."""
        is_first = self._generation == ""
        self._generation, self._cursor = generation, head
        self._began.set()
        self._progress.clear()
        for listener in self._listeners:
            listener.generation = generation
            if not is_first:
                listener.offer(reset_message(generation, head, listener.job_id))

    async def _read_progress(self, platform: Platform) -> None:
        async with platform.database.connection() as connection:
            rows = await queries.jobs.live_progress(connection, MAX_LIVE_JOBS)
        seen = {}
        for row in rows:
            key = (row["attempt"], row["step"], row["max_steps"], row["phase"])
            seen[row["job_id"]] = key
            if self._progress.get(row["job_id"]) != key:
                self._hand_out(progress_message(row))
        self._progress = seen

    def _hand_out(self, message: Message) -> None:
        for listener in tuple(self._listeners):
            listener.offer(message)


async def messages(
    live: Live, platform: Platform, listener: Listener, resume: tuple[str, int] | None
) -> AsyncGenerator[Message, None]:
    """All messages for the listener: what it missed, from the table, then new ones.

    `resume` is the generation and cursor that it received last; another generation is a reset.
    """
    generation, caught_up = listener.generation, listener.cursor
    if resume is not None and resume[0] != generation:
        yield reset_message(generation, caught_up, listener.job_id)
    elif resume is not None:
        cursor = resume[1]
        while cursor < caught_up:
            rows = await _missed(platform, listener, cursor, caught_up)
            for row in rows:
                yield timeline_message(row)
            cursor = rows[-1]["cursor"] if len(rows) == PAGE_ROWS else caught_up
    while True:
        message = await listener.queue.get()
        if message is None or (listener.is_dropped and listener.queue.empty()):
            return
        yield message


async def _missed(
    platform: Platform, listener: Listener, cursor: int, until: int
) -> list[dict[str, Any]]:
    """The next page of rows after `cursor`, of the listener's job or tenant."""
    timeline, tenant_id, job_id = queries.timeline, listener.tenant_id, listener.job_id
    page = (cursor, until, PAGE_ROWS)
    async with platform.database.connection() as connection:
        if job_id is None:
            return await timeline.of_tenant(connection, tenant_id, *page)
        return await timeline.of_job(connection, tenant_id, job_id, *page)


def reset_message(generation: str, cursor: int, job_id: str | None) -> Message:
    """Everything that was read before is out of date: read it again, then follow this cursor."""
    return Message("reset", {"generation": generation}, cursor, job_id)


def timeline_message(row: dict[str, Any]) -> Message:
    sentence = narrate(row["type"], row["payload"])
    data = {
        "type": row["type"],
        "event_id": row["event_id"],
        "occurred_at": _text(row["occurred_at"]),
        "job_id": row["job_id"],
        "study_id": row["study_id"],
        "node_id": row["node_id"],
        "text": plain(sentence.text),
        "tone": sentence.tone.value,
    }
    tenant_id = None if row["type"] in SHARED_TYPES else row["tenant_id"]
    return Message(row["type"], data, row["cursor"], row["job_id"], tenant_id)


def progress_message(row: dict[str, Any]) -> Message:
    pace = steps_per_second(row["first_step"], row["first_step_at"], row["step"], row["step_at"])
    data = {
        **{
            name: row[name] for name in ("job_id", "attempt", "phase", "step", "max_steps", "epoch")
        },
        "steps_per_second": pace,
        "eta_seconds": eta_seconds(row["step"], row["max_steps"], pace),
    }
    return Message("progress", data, None, row["job_id"], row["tenant_id"])


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
