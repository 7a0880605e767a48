"""The consuming loop: poll -> one transaction per batch -> commit the offsets.

Only the contiguous done prefix of a partition is committed, after its transactions. A temporary
failure seeks back, pauses that partition and backs off while the loop keeps polling, so that the
group membership is kept. A batch that fails is rolled back and done again one by one, so that a bug
ends the process at exactly its record. `crashes` has what the next process does there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from services.runtime import logs
from services.runtime.bus import Partition, Record, RecordSource
from services.runtime.clock import Clock
from services.runtime.crashes import MAX_ENDS, CrashWatch, Start
from services.runtime.database import Database
from services.runtime.errors import PlatformError, TemporaryError, is_temporary, unavailable_part
from services.runtime.instruments import (
    BATCHES_SPLIT,
    DELAY_SECONDS,
    HANDLING_SECONDS,
    PAUSED,
    RETRIES,
)
from services.runtime.parking import InvalidRecord
from services.runtime.processing import CannotRead, Processor, Work
from services.runtime.rewind import Rewind

log = logs.get()

POLL_SECONDS = 1.0
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
RETRY_SECONDS = 1.0
ABANDON_SECONDS = 2.0
# A batch that takes longer is done one by one: the watchdog would end the process for it, and the
# next process would begin the same batch.
BATCH_SECONDS = 30.0
# A rebuild reads history: the age of its records says nothing about how long they waited.
MEASURED_DELAY_SECONDS = 3600.0
NONE: frozenset[Partition] = frozenset()


class FailedAtRecord(PlatformError):
    """A bug ended the consumer at a record whose position is recorded; the cause is the bug."""


@dataclass(slots=True)
class _Pause:
    failures: int
    until: float


class _Poll(NamedTuple):
    """What the loop requests from its source."""

    partitions: frozenset[Partition]
    seconds: float = POLL_SECONDS
    max_records: int | None = None


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
        # When the loop last iterated or finished a transaction, and how often it polled; the
        # watchdog uses both.
        self.last_moved = clock.monotonic()
        self.num_polls = 0
        # Why it has not joined its group yet.
        self.waits_for = ""
        self._processor = processor
        self._database = database
        self._clock = clock
        self._crashes = CrashWatch(group, database)
        self._rewind = Rewind(group, source, database)
        self._paused: dict[Partition, _Pause] = {}
        # Partitions whose start is counted, or needs no count.
        self._begun: set[Partition] = set()
        # Ends of partitions as they were; asked for again where one is reached.
        self._ends: Mapping[Partition, int] = {}
        # Partitions with a batch that failed, and the end of that batch.
        self._one_by_one: dict[Partition, int] = {}
        # When the last handled record of each partition was written, in seconds since the epoch.
        self.handled_at: dict[Partition, float] = {}
        # Partitions with polled records that are not handled yet, and the offset of the next one.
        self._in_hand: dict[Partition, int] = {}

    @property
    def paused(self) -> frozenset[Partition]:
        """Partitions that back off after a temporary failure."""
        return frozenset(self._paused)

    async def position(self, partition: Partition) -> int | None:
        """The offset of the next record to be handled; None while it is not known."""
        in_hand = self._in_hand.get(partition)
        return await self.source.position(partition) if in_hand is None else in_hand

    async def run(self, stopping: asyncio.Event, *, from_start: bool = False) -> None:
        """Consume until `stopping`.

        `from_start` reads every partition from offset 0 once in the life of the schema.
        """
        await self._start(stopping)
        try:
            while not stopping.is_set():
                poll = await self._prepare(from_start)
                batches = await self.source.poll(poll.seconds, poll.partitions, poll.max_records)
                self.num_polls += 1
                self._moved()
                if batches:
                    await self._handle_all(batches, stopping)
                self._resume_due()
            await self._if_possible(self._crashes.stops())
        finally:
            await self.source.stop()

    async def _start(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            try:
                await self.source.start()
                self.waits_for = ""
                return
            except TemporaryError as error:
                self.waits_for = str(error)
                part = unavailable_part(error)
                log.warning("consumer waits", group=self.group, part=part, error=str(error))
            self._moved()
            await self._clock.sleep(RETRY_SECONDS)

    async def _prepare(self, from_start: bool) -> _Poll:
        """What to poll now: partitions that are counted and, where requested, rewound."""
        try:
            assigned = self.source.assignment()
            if from_start and assigned:
                assigned = await self._rewind.rewound()
            if not assigned <= self._begun:
                await self._count_starts(assigned - self._begun)
            suspect = self._next_suspect(assigned & self._begun)
            if suspect is not None:
                return await self._suspected(suspect)
        except Exception as error:
            if not is_temporary(error):
                raise
            part = unavailable_part(error)
            log.warning("consumer waits", group=self.group, part=part, error=repr(error))
            await self._clock.sleep(RETRY_SECONDS)
        ready = self.source.assignment() & self._begun
        return _Poll(ready - self._crashes.alone, 0.0 if self._suspects(ready) else POLL_SECONDS)

    async def _count_starts(self, partitions: Set[Partition]) -> None:
        """Done before anything is decoded. Where there is no lag, no record can be at fault."""
        self._ends = await self.source.end_offsets()
        for partition in partitions:
            position = await self.source.position(partition)
            if position is None or partition not in self._ends:
                continue  # it has no leader at present; the others begin
            if position < self._ends[partition]:
                await self._count_start(partition, position)
            self._begun.add(partition)

    async def _count_start(self, partition: Partition, position: int) -> None:
        start = await self._crashes.count(partition, position)
        if start is Start.PARK_BATCH:
            self.source.withhold(partition)
        if start is not Start.IN_BATCHES:
            log.error(
                "the process ended here before",
                group=self.group,
                topic=partition.topic,
                partition=partition.number,
                offset=position,
                decision=str(start),
            )

    def _next_suspect(self, partitions: Set[Partition]) -> Partition | None:
        """Every other poll is for one partition that is read alone."""
        suspects = self._suspects(partitions)
        if not suspects or (self.num_polls % 2 and partitions - self._crashes.alone):
            return None
        return suspects[self.num_polls // 2 % len(suspects)]

    def _suspects(self, partitions: Set[Partition]) -> list[Partition]:
        now = self._clock.monotonic()
        waiting = {item for item, pause in self._paused.items() if pause.until > now}
        return sorted(partitions & self._crashes.alone - waiting)

    async def _suspected(self, partition: Partition) -> _Poll:
        """One record, and no batch after its own, so that a crash is at this position.

        The end is not asked for each time: the broker answers that only after the fetch that waits
        for records of other partitions, so a second would pass with every record.
        """
        position = await self.source.position(partition)
        if position is not None and position >= self._ends.get(partition, 0):
            self._ends = await self.source.end_offsets()
        if position is None or partition not in self._ends:
            return _Poll(NONE)
        if position >= self._ends[partition]:
            await self._crashes.survives(partition)
        else:
            await self._crashes.reads_alone(partition, position)
        return _Poll(frozenset({partition}), max_records=1)

    async def _handle_all(
        self, batches: Mapping[Partition, Sequence[Record]], stopping: asyncio.Event
    ) -> None:
        self._in_hand = {partition: records[0].offset for partition, records in batches.items()}
        done: dict[Partition, int] = {}
        try:
            for partition, records in batches.items():
                await self._handle(partition, records, stopping, done)
                del self._in_hand[partition]
                self._moved()
        except asyncio.CancelledError:
            await self._abandon(partition, done)
            raise
        except Exception:
            await self.source.commit(done)
            raise
        await self.source.commit(done)

    async def _abandon(self, partition: Partition, done: Mapping[Partition, int]) -> None:
        """At a stop's deadline or another part's failure: commit what is done, count no crash."""
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
        """Handle the records of one partition in order; `done` is the offset reached."""
        first, withheld_at = records[0], self._crashes.withheld_at(partition)
        done[partition] = first.offset if withheld_at is None else withheld_at
        try:
            if self._crashes.must_park(partition, first):
                await self._park_deadly(partition, first)
                done[partition] = first.offset + 1
                records = records[1:]
            while records and not stopping.is_set():
                batch = records[: self._size(partition, records[0])]
                if await self._process(partition, batch):
                    self.handled_at[partition] = batch[-1].timestamp_ms / 1000
                    done[partition] = self._in_hand[partition] = batch[-1].offset + 1
                    records = records[len(batch) :]
            await self._crashes.is_past(partition, done[partition])
        except Exception as error:
            if not is_temporary(error):
                raise await self._failed_at(partition, done[partition], error) from error
            self._back_off(partition, done[partition], error)
            if not self._crashes.must_park(partition, first):
                await self._survived(partition)
            elif withheld_at is not None:
                self.source.withhold(partition)  # again: it is not parked yet
            return
        self._paused.pop(partition, None)
        if records:  # stopping: the rest is left to the next owner
            self.source.seek(partition, done[partition])

    def _size(self, partition: Partition, first: Record) -> int:
        """How many records, from `first` on, share the next transaction."""
        if partition in self._crashes.alone:
            return 1
        if first.offset < self._one_by_one.get(partition, 0):
            return 1
        return self._processor.max_batch

    async def _process(self, partition: Partition, batch: Sequence[Record]) -> bool:
        """False where the batch failed and is done again, each record in its own transaction."""
        if partition in self._crashes.alone:
            await self._crashes.handles_alone(partition, batch[0].offset)
            await self.source.commit({partition: batch[0].offset})
        try:
            work = self._processor.plan(batch)
            if work is not None:
                async with asyncio.timeout(BATCH_SECONDS if len(batch) > 1 else None):
                    await self._transact(work)
                self._observe_delays(batch)
        except Exception as error:
            if len(batch) > 1:
                self._one_by_one[partition] = batch[-1].offset + 1
                if is_temporary(error):
                    raise  # a batch may be what takes too long, or what runs into a deadlock
                self._note_failed(partition, batch, error)
                return False
            if not isinstance(error, CannotRead):
                raise
            await self._park_unreadable(batch[0], error)
        finally:
            self._moved()
        return True

    def _observe_delays(self, batch: Sequence[Record]) -> None:
        delay = DELAY_SECONDS.labels(self.group)
        now = self._clock.now().timestamp()
        for record in batch:
            seconds = now - record.timestamp_ms / 1000
            if seconds <= MEASURED_DELAY_SECONDS:
                delay.observe(max(0.0, seconds))

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

    async def _park_unreadable(self, record: Record, error: CannotRead) -> None:
        async with self._database.transaction() as tx:
            invalid = InvalidRecord(record, "undecodable", str(error))
            await self._processor.set_aside(tx, [invalid])

    async def _park_deadly(self, partition: Partition, record: Record) -> None:
        detail = f"the service ended {MAX_ENDS} times at this record"
        async with self._database.transaction() as tx:
            await self._processor.set_aside(tx, [InvalidRecord(record, "crash_loop", detail)])
            await self._crashes.parked(tx, partition, record.offset)
        await self.source.commit({partition: record.offset + 1})

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
            part=unavailable_part(error),
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

    async def _failed_at(self, partition: Partition, offset: int, error: Exception) -> Exception:
        """Record where `error` ends the process. Returns what to raise."""
        try:
            await self._crashes.fails_at(partition, offset)
        except Exception as problem:
            log.warning("crash offset not saved", group=self.group, error=repr(problem))
            return error
        return FailedAtRecord(f"{partition.topic}/{partition.number}/{offset}: {error!r}")

    async def _survived(self, partition: Partition) -> None:
        await self._if_possible(self._crashes.survives(partition))

    async def _if_possible(self, count: Awaitable[None]) -> None:
        try:
            await count
        except Exception as error:
            if not is_temporary(error):
                raise

    def _moved(self) -> None:
        self.last_moved = self._clock.monotonic()
