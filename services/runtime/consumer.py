"""The consuming loop: poll -> one transaction per batch -> keep the offset.

Only the contiguous done prefix of a partition is committed, after its transaction. A temporary
failure seeks back, pauses that partition and backs off while the loop goes on polling, so the group
membership lives. A bug ends the process; a partition on which the process died twice at the same
offset is then handled one record at a time, and the record that kills it a third time is parked.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.runtime import logs
from services.runtime.bus import Partition, Record, RecordSource
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.errors import TemporaryError, is_temporary
from services.runtime.instruments import HANDLING_SECONDS, PAUSED, RETRIES
from services.runtime.processing import Processor

log = logs.get()

POLL_SECONDS = 0.5
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
START_RETRY_SECONDS = 1.0
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
_RECORD_DEATH = """
insert into crash_watch (consumer_group, topic, partition, "offset", starts)
values ($1, $2, $3, $4, $5)
on conflict (consumer_group, topic, partition) do update set
    starts = excluded.starts, "offset" = excluded."offset"
where crash_watch."offset" <> excluded."offset"
"""
_FORGET = """
delete from crash_watch where consumer_group = $1 and topic = $2 and partition = $3
"""


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
        self.last_poll = clock.monotonic()
        self._processor = processor
        self._database = database
        self._clock = clock
        self._paused: dict[Partition, _Pause] = {}
        # Partitions whose first record since the start was counted; of these, the ones whose count
        # still stands; and those handled one record at a time, up to which offset.
        self._counted: set[Partition] = set()
        self._standing: set[Partition] = set()
        self._alone: dict[Partition, int] = {}

    @property
    def paused(self) -> frozenset[Partition]:
        """Partitions that back off after a temporary failure."""
        return frozenset(self._paused)

    async def run(self, stopping: asyncio.Event, *, from_start: bool = False) -> None:
        """Consume until `stopping`. `from_start` reads every partition from offset 0 once more."""
        await self._start()
        rewound: set[Partition] = set()
        try:
            while not stopping.is_set():
                if from_start:
                    await self._rewind(rewound)
                batches = await self.source.poll(POLL_SECONDS)
                self.last_poll = self._clock.monotonic()
                for partition, records in batches.items():
                    if from_start and partition not in rewound:
                        continue
                    await self._handle(partition, records, stopping)
                self._resume_due()
        finally:
            await self.source.stop()

    async def _start(self) -> None:
        while True:
            try:
                await self.source.start()
                return
            except TemporaryError as error:
                log.warning("consumer waits for Kafka", group=self.group, error=str(error))
                await self._clock.sleep(START_RETRY_SECONDS)

    async def _rewind(self, rewound: set[Partition]) -> None:
        for partition in self.source.assignment() - rewound:
            self.source.seek(partition, 0)
            rewound.add(partition)

    async def _handle(
        self, partition: Partition, records: Sequence[Record], stopping: asyncio.Event
    ) -> None:
        offset = records[0].offset
        end = records[-1].offset + 1
        try:
            if await self._must_park(partition, records[0]):
                records = records[1:]
                offset += 1
            while records and not stopping.is_set():
                size = 1 if partition in self._alone else self._processor.max_batch
                await self._process(partition, records[:size])
                offset = records[:size][-1].offset + 1
                records = records[size:]
        except Exception as error:
            await self.source.commit({partition: offset})
            if is_temporary(error):
                self._back_off(partition, offset, error)
                return
            await self._record_death(partition, offset, starts=1)
            raise
        if offset < end:
            self.source.seek(partition, offset)  # stopping: the rest is left to the next owner
        await self.source.commit({partition: offset})
        await self._forget(partition, offset)
        self._paused.pop(partition, None)

    async def _process(self, partition: Partition, batch: Sequence[Record]) -> None:
        if partition in self._alone:
            # Should the process die now, it died on this very record.
            await self._record_death(partition, batch[0].offset, starts=STARTS_BEFORE_ALONE)
            await self.source.commit({partition: batch[0].offset})
        with HANDLING_SECONDS.labels(self.group).time():
            async with self._database.transaction() as tx:
                await self._processor.process(tx, batch)

    def _back_off(self, partition: Partition, offset: int, error: Exception) -> None:
        self.source.seek(partition, offset)
        self.source.pause(partition)
        previous = self._paused.get(partition)
        failures = previous.failures + 1 if previous else 1
        seconds = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]
        self._paused[partition] = _Pause(failures, self._clock.monotonic() + seconds)
        RETRIES.labels(self.group).inc()
        PAUSED.labels(self.group).set(len(self._paused))
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
        async with self._database.connection() as connection:
            starts = await connection.fetchval(_COUNT_START, self.group, *partition, first.offset)
        self._counted.add(partition)
        self._standing.add(partition)
        if starts >= STARTS_BEFORE_ALONE:
            self._alone[partition] = first.offset + NUM_ALONE
            log.error("records are handled alone", group=self.group, topic=partition.topic)
        if starts < STARTS_BEFORE_PARKING:
            return False
        async with self._database.transaction() as tx:
            detail = f"the service died {STARTS_BEFORE_PARKING - 1} times at this record"
            await self._processor.set_aside(tx, first, "crash_loop", detail)
        return True

    async def _record_death(self, partition: Partition, offset: int, starts: int) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_RECORD_DEATH, self.group, *partition, offset, starts)

    async def _forget(self, partition: Partition, offset: int) -> None:
        """The partition got past the offset it began at: its count starts anew."""
        if partition not in self._standing or offset < self._alone.get(partition, 0):
            return
        async with self._database.connection() as connection:
            await connection.execute(_FORGET, self.group, *partition)
        self._standing.discard(partition)
        self._alone.pop(partition, None)


def lag(ends: Mapping[Partition, int], positions: Mapping[Partition, int]) -> int:
    """Records between the positions and the ends."""
    return sum(max(0, end - positions.get(partition, end)) for partition, end in ends.items())
