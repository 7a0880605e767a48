"""The consuming loop: poll -> one transaction per batch -> keep the offsets.

Only the contiguous done prefix of a partition is committed, after its transactions. A temporary
failure seeks back, pauses that partition and backs off while the loop goes on polling, so the group
membership lives. A batch that fails is rolled back and done again one by one, so that a bug ends
the process at the very record; a partition on which the process died twice at the same
offset is then handled one record at a time, and the record that kills it a third time is parked.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from services.runtime import logs
from services.runtime.bus import Partition, Record, RecordSource
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.errors import PlatformError, TemporaryError, is_temporary
from services.runtime.instruments import BATCHES_SPLIT, HANDLING_SECONDS, PAUSED, RETRIES
from services.runtime.processing import Processor, Work

log = logs.get()

POLL_SECONDS = 0.5
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
RETRY_SECONDS = 1.0
ABANDON_SECONDS = 2.0
STARTS_BEFORE_ALONE = 3
STARTS_BEFORE_PARKING = 4
# How many records after the suspicious one are still handled alone.
NUM_ALONE = 500

_COUNT_START = """
insert into crash_watch (consumer_group, topic, partition, "offset", starts)
values ($1, $2, $3, $4, 1)
on conflict (consumer_group, topic, partition) do update set
    starts = case when crash_watch."offset" = excluded."offset"
        then crash_watch.starts + 1 else 1 end,
    "offset" = excluded."offset"
returning starts
"""
_STANDS_AT = """
insert into crash_watch (consumer_group, topic, partition, "offset", starts)
values ($1, $2, $3, $4, $5)
on conflict (consumer_group, topic, partition) do update set
    starts = excluded.starts, "offset" = excluded."offset"
where crash_watch."offset" <> excluded."offset"
"""
_FORGET = """
delete from crash_watch where consumer_group = $1 and topic = $2 and partition = $3
"""
_SCHEMA = "select current_schema()::regnamespace::oid"
_IS_REWOUND = """
select 1 from rewound where consumer_group = $1 and topic = $2 and partition = $3
"""
_REWOUND = """
insert into rewound (consumer_group, topic, partition) values ($1, $2, $3) on conflict do nothing
"""


class SchemaReplaced(PlatformError):
    """What this process remembers of its positions belongs to a schema that is no more."""


class FailedAtRecord(PlatformError):
    """A bug ended the consumer at a record whose position is recorded; the cause is the bug."""


@dataclass(slots=True)
class _Pause:
    failures: int
    until: float


class Consumer:
    """Reads the topics of one group until `stopping` is set."""

    def __init__(
        self,
        group: str,
        source: RecordSource,
        processor: Processor,
        database: Database,
        clock: Clock,
    ) -> None:
        self.group = group
        self.source = source
        # When the loop last turned or finished a transaction; the watchdog looks at it.
        self.last_moved = clock.monotonic()
        self._processor = processor
        self._database = database
        self._clock = clock
        self._paused: dict[Partition, _Pause] = {}
        # Partitions whose first record since the start was counted; of these, the ones whose count
        # still stands; and those handled one record at a time, up to which offset.
        self._counted: set[Partition] = set()
        self._standing: set[Partition] = set()
        self._alone: dict[Partition, int] = {}
        # Partitions with a batch that failed, and the end of that batch.
        self._one_by_one: dict[Partition, int] = {}
        self._rewound: set[Partition] = set()
        self._schema: int | None = None

    @property
    def paused(self) -> frozenset[Partition]:
        """Partitions that back off after a temporary failure."""
        return frozenset(self._paused)

    async def run(self, stopping: asyncio.Event, *, from_start: bool = False) -> None:
        """Consume until `stopping`.

        `from_start` reads every partition from offset 0 once in the life of the schema.
        """
        await self._start(stopping)
        try:
            while not stopping.is_set():
                if from_start:
                    await self._rewind()
                batches = await self.source.poll(POLL_SECONDS)
                self._moved()
                if batches:
                    await self._handle_all(batches, stopping, from_start)
                self._resume_due()
        finally:
            await self.source.stop()

    async def _start(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                await self.source.start()
                return
            except TemporaryError as error:
                log.warning("consumer waits for Kafka", group=self.group, error=str(error))
            self._moved()
            await self._clock.sleep(RETRY_SECONDS)

    async def _rewind(self) -> None:
        """Partitions that this schema has not seen begin at 0; the mark outlives a crash."""
        try:
            async with self._database.connection() as connection:
                await self._refuse_another_schema(connection)
                for partition in self.source.assignment() - self._rewound:
                    if not await connection.fetchval(_IS_REWOUND, self.group, *partition):
                        self.source.seek(partition, 0)
                        if not await self.source.commit({partition: 0}):
                            continue
                        await connection.execute(_REWOUND, self.group, *partition)
                    self._rewound.add(partition)
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning("rewinding waits for Postgres", group=self.group, error=repr(error))
            await self._clock.sleep(RETRY_SECONDS)

    async def _refuse_another_schema(self, connection: asyncpg.Connection) -> None:
        """A rebuild may be done and migrated by another replica before this one meets a table."""
        found = await connection.fetchval(_SCHEMA)
        if found is None or self._schema not in (None, found):
            raise SchemaReplaced("the schema was dropped: a new process reads from the start")
        self._schema = found

    async def _handle_all(
        self,
        batches: Mapping[Partition, Sequence[Record]],
        stopping: asyncio.Event,
        from_start: bool,
    ) -> None:
        done: dict[Partition, int] = {}
        try:
            for partition, records in batches.items():
                if from_start and partition not in self._rewound:
                    self.source.seek(partition, records[0].offset)
                    continue
                await self._handle(partition, records, stopping, done)
                self._moved()
        except asyncio.CancelledError:
            await self._abandon(partition, done)
            raise
        except Exception:
            await self.source.commit(done)
            raise
        await self.source.commit(done)

    async def _abandon(self, partition: Partition, done: Mapping[Partition, int]) -> None:
        """Told to stop, or a sibling died: keep what is done; the record in hand did not kill."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABANDON_SECONDS):
                await self.source.commit(done)
                await self._survived(partition)

    async def _handle(
        self,
        partition: Partition,
        records: Sequence[Record],
        stopping: asyncio.Event,
        done: dict[Partition, int],
    ) -> None:
        """Handle the records of one partition in order; `done` says up to which offset."""
        done[partition] = records[0].offset
        try:
            if await self._must_park(partition, records[0]):
                done[partition] += 1
                records = records[1:]
            while records and not stopping.is_set():
                batch = records[: self._size(partition, records[0])]
                if await self._process(partition, batch):
                    done[partition] = batch[-1].offset + 1
                    records = records[len(batch) :]
            await self._forget(partition, done[partition])
        except Exception as error:
            if not is_temporary(error):
                raise await self._died_at(partition, done[partition], error) from error
            self._back_off(partition, done[partition], error)
            await self._survived(partition)
            return
        self._paused.pop(partition, None)
        if records:  # stopping: the rest is left to the next owner
            self.source.seek(partition, done[partition])

    def _size(self, partition: Partition, first: Record) -> int:
        """How many records, from `first` on, share the next transaction."""
        if partition in self._alone or first.offset < self._one_by_one.get(partition, 0):
            return 1
        return self._processor.max_batch

    async def _process(self, partition: Partition, batch: Sequence[Record]) -> bool:
        """False where the batch failed and is done again, each record in its own transaction."""
        if partition in self._alone:
            # Should the process die now, it died on this very record.
            await self._stands_at(partition, batch[0].offset, STARTS_BEFORE_ALONE)
            await self.source.commit({partition: batch[0].offset})
        try:
            work = self._processor.plan(batch)
            if work is not None:
                await self._transact(work)
        except Exception as error:
            if len(batch) == 1:
                raise
            self._one_by_one[partition] = batch[-1].offset + 1
            if is_temporary(error):
                raise  # a batch may be what takes too long, or what runs into a deadlock
            self._note_failed(partition, batch, error)
            return False
        finally:
            self._moved()
        return True

    def _note_failed(self, partition: Partition, batch: Sequence[Record], error: Exception) -> None:
        BATCHES_SPLIT.labels(self.group).inc()
        log.warning(
            "batch failed, its records are handled one by one",
            group=self.group,
            topic=partition.topic,
            partition=partition.number,
            offset=batch[0].offset,
            num_records=len(batch),
            error=repr(error),
        )

    async def _transact(self, work: Work) -> None:
        with HANDLING_SECONDS.labels(self.group).time():
            async with self._database.transaction() as tx:
                await work(tx)

    def _back_off(self, partition: Partition, offset: int, error: Exception) -> None:
        self.source.seek(partition, offset)
        self.source.pause(partition)
        previous = self._paused.get(partition)
        failures = previous.failures + 1 if previous else 1
        seconds = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]
        self._paused[partition] = _Pause(failures, self._clock.monotonic() + seconds)
        RETRIES.labels(self.group).inc()
        log.warning(
            "partition backs off",
            group=self.group,
            topic=partition.topic,
            partition=partition.number,
            offset=offset,
            seconds=seconds,
            error=repr(error),
        )

    def _resume_due(self) -> None:
        now = self._clock.monotonic()
        for partition in self._paused.keys() - self.source.assignment():
            del self._paused[partition]  # taken over: its new owner has it
        for partition, pause in self._paused.items():
            if pause.until <= now:
                self.source.resume(partition)
        PAUSED.labels(self.group).set(len(self._paused))

    async def _must_park(self, partition: Partition, first: Record) -> bool:
        """Once per partition and process: how often did a process begin at this very offset?

        Parks the record, and says so, when it killed the process too often.
        """
        if partition in self._counted:
            return False
        async with self._database.transaction() as tx:
            starts = await tx.connection.fetchval(
                _COUNT_START, self.group, *partition, first.offset
            )
            is_deadly = bool(starts >= STARTS_BEFORE_PARKING)
            if is_deadly:
                detail = f"the service died {STARTS_BEFORE_PARKING - 1} times at this record"
                await self._processor.set_aside(tx, first, "crash_loop", detail)
                # What follows has a count of its own, and this process began there.
                await tx.connection.execute(_STANDS_AT, self.group, *partition, first.offset + 1, 1)
        self._counted.add(partition)
        self._standing.add(partition)
        if is_deadly:
            await self.source.commit({partition: first.offset + 1})
        elif starts >= STARTS_BEFORE_ALONE:
            self._alone[partition] = first.offset + NUM_ALONE
            log.error("records are handled alone", group=self.group, topic=partition.topic)
        return is_deadly

    async def _died_at(self, partition: Partition, offset: int, error: Exception) -> Exception:
        """Record where `error` ends the process. Returns what to raise."""
        try:
            await self._stands_at(partition, offset, 1)
        except Exception as problem:
            log.warning("crash offset not saved", group=self.group, error=repr(problem))
            return error
        return FailedAtRecord(f"{partition.topic}/{partition.number}/{offset}: {error!r}")

    async def _survived(self, partition: Partition) -> None:
        """The record failed and did not kill: a restart meanwhile is no crash on it."""
        self._alone.pop(partition, None)
        try:
            await self._forget(partition, 0)
        except Exception as error:
            if not is_temporary(error):
                raise

    async def _stands_at(self, partition: Partition, offset: int, starts: int) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_STANDS_AT, self.group, *partition, offset, starts)

    async def _forget(self, partition: Partition, offset: int) -> None:
        """The partition got past the offset it began at: its count starts anew."""
        if partition not in self._standing or offset < self._alone.get(partition, 0):
            return
        async with self._database.connection() as connection:
            await connection.execute(_FORGET, self.group, *partition)
        self._standing.discard(partition)
        self._alone.pop(partition, None)

    def _moved(self) -> None:
        self.last_moved = self._clock.monotonic()
