"""Counts how often a process started at one position and ended there, to find the bad record.

A start is counted per partition by its fetch position, where there is something to read, before
anything is decoded. The first ends name only the position, so from the third start on such a
partition is polled alone, one record and so one batch at a time, its records are handled alone, and
each step is saved before it is taken. A row of `crash_watch` holds the offset, the number of starts
and the last step:

| starts here, this one included | last step that was saved | this start |
|---|---|---|
| 1 or 2 | any | reads in batches |
| 3 | any | reads and handles alone |
| 4 and more | reading | parks the batch at this position, not decoded |
| 4 and more | handling | parks the record at this position |
| 4 and more | unknown: the process ended by something else | reads and handles alone |

So a record is parked after three ends (docs/architecture.md, rule 12). The row is deleted once the
partition is past it. A bug that raises saves the offset of its record as it ends the process. An
orderly stop, an outage and the failure of another part are no crashes of the record in hand.
"""

from dataclasses import dataclass
from enum import StrEnum

from services.runtime.bus import Partition, Record
from services.runtime.database import Database
from services.runtime.transaction import Tx

# A record is parked after this many ends.
MAX_ENDS = 3
# How many offsets from the position are handled alone; at least the largest batch.
NUM_ALONE = 2000

_COUNT_START = """
insert into crash_watch (consumer_group, topic, partition, "offset", starts)
values ($1, $2, $3, $4, 1)
on conflict (consumer_group, topic, partition) do update set
    starts = case when crash_watch."offset" = excluded."offset"
        then crash_watch.starts + 1 else 1 end,
    "offset" = excluded."offset",
    last_step = 'unknown'
returning starts, (
    select before.last_step from crash_watch before
    where (before.consumer_group, before.topic, before.partition) = ($1, $2, $3)) as last_step
"""
_SAVE_STEP = """
insert into crash_watch (consumer_group, topic, partition, "offset", starts, last_step)
values ($1, $2, $3, $4, $5, $6)
on conflict (consumer_group, topic, partition) do update set
    starts = case when crash_watch."offset" = excluded."offset"
        then crash_watch.starts else excluded.starts end,
    "offset" = excluded."offset",
    last_step = excluded.last_step
"""
_START_AT = """
update crash_watch set "offset" = $4, starts = 1, last_step = 'unknown'
where (consumer_group, topic, partition) = ($1, $2, $3)
"""
_DELETE = """
delete from crash_watch where consumer_group = $1 and topic = $2 and partition = $3
"""


class Start(StrEnum):
    """How this process starts to read a partition."""

    IN_BATCHES = "read in batches"
    ALONE = "read and handle alone"
    PARK_RECORD = "park the record"
    PARK_BATCH = "park the batch undecoded"


def decide(starts: int, last_step: str | None) -> Start:
    """What the `starts`-th start at one position does; the table above."""
    if starts < MAX_ENDS:
        return Start.IN_BATCHES
    if starts > MAX_ENDS and last_step == "reading":
        return Start.PARK_BATCH
    if starts > MAX_ENDS and last_step == "handling":
        return Start.PARK_RECORD
    return Start.ALONE


@dataclass(frozen=True, slots=True)
class _Counted:
    """A start that this process has counted, and whose row is still there."""

    position: int
    start: Start


class CrashWatch:
    """The counts of one consumer group, as this process knows them."""

    def __init__(self, group: str, database: Database) -> None:
        self._group = group
        self._database = database
        self._counted: dict[Partition, _Counted] = {}

    @property
    def alone(self) -> frozenset[Partition]:
        """The partitions that are read alone."""
        return frozenset(
            partition for partition, it in self._counted.items() if it.start is Start.ALONE
        )

    def withheld_at(self, partition: Partition) -> int | None:
        """Where the batch begins that is to be parked undecoded; its record has its last offset."""
        counted = self._counted.get(partition)
        if counted is None or counted.start is not Start.PARK_BATCH:
            return None
        return counted.position

    def must_park(self, partition: Partition, record: Record) -> bool:
        """True where this first record of the partition is to be parked."""
        counted = self._counted.get(partition)
        if counted is None:
            return False
        is_there = counted.start is Start.PARK_RECORD and record.offset == counted.position
        return is_there or counted.start is Start.PARK_BATCH

    async def count(self, partition: Partition, position: int) -> Start:
        """Count that this process begins at `position`."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_COUNT_START, self._group, *partition, position)
        assert row is not None
        start = decide(row["starts"], row["last_step"])
        self._counted[partition] = _Counted(position, start)
        return start

    async def reads_alone(self, partition: Partition, position: int) -> None:
        """Save that the process is about to read at this position."""
        await self._save(partition, position, MAX_ENDS, "reading")

    async def handles_alone(self, partition: Partition, offset: int) -> None:
        """Save that the process is about to handle this record."""
        await self._save(partition, offset, MAX_ENDS, "handling")

    async def fails_at(self, partition: Partition, offset: int) -> None:
        """A bug ends this process at this record; the next start is the second one here."""
        await self._save(partition, offset, 1, "handling")

    async def parked(self, tx: Tx, partition: Partition, offset: int) -> None:
        """The record at `offset` is parked in `tx`: later records have their own count."""
        await tx.connection.execute(_START_AT, self._group, *partition, offset + 1)
        counted = _Counted(offset + 1, Start.IN_BATCHES)
        tx.after_commit(lambda: self._counted.update({partition: counted}))

    async def is_past(self, partition: Partition, offset: int) -> None:
        """Everything before `offset` is done: the next crash is counted from 1."""
        counted = self._counted.get(partition)
        if counted is None:
            return
        num_alone = NUM_ALONE if counted.start is Start.ALONE else 0
        if offset > counted.position + num_alone:
            await self.survives(partition)

    async def stops(self) -> None:
        """The process ends in order."""
        for partition in [*self._counted]:
            await self.survives(partition)

    async def survives(self, partition: Partition) -> None:
        """The current records failed, were abandoned or are done, and did not end the process."""
        if partition in self._counted:
            async with self._database.connection() as connection:
                await connection.execute(_DELETE, self._group, *partition)
            del self._counted[partition]

    async def _save(self, partition: Partition, offset: int, starts: int, step: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(_SAVE_STEP, self._group, *partition, offset, starts, step)
