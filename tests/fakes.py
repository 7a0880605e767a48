"""Fakes: a bus, a clock and an object store in memory.

One contract suite runs on each fake and on the real adapter (`tests/contract/`).
"""

import asyncio
import heapq
import itertools
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from services.runtime.bus import DELIVERED, OnSettled, OutRecord, Partition, Record
from services.runtime.object_store import CHUNK_BYTES, NoSuchObject, ObjectInfo, Upload


class ManualClock:
    """Time that only moves by `advance`; sleepers wake in the order of their times."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        if seconds <= 0:
            woken.set_result(None)
        await woken

    async def advance(self, seconds: float) -> None:
        until = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, woken = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not woken.done():
                woken.set_result(None)
            await asyncio.sleep(0)  # it runs, and may sleep again, before the next one wakes
        self._elapsed = until
        await asyncio.sleep(0)


class InMemoryBus:
    """Topics as lists. `num_partitions` each; keys stay on their partition."""

    def __init__(self, num_partitions: int = 4) -> None:
        self._num_partitions = num_partitions
        self._logs: dict[Partition, list[Record]] = {}
        self._committed: dict[tuple[str, Partition], int] = {}
        self._written = asyncio.Condition()

    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        async with self._written:
            for record in records:
                number = zlib.crc32(record.key or b"") % self._num_partitions
                log = self._logs.setdefault(Partition(record.topic, number), [])
                log.append(
                    Record(
                        topic=record.topic,
                        partition=number,
                        offset=len(log),
                        timestamp_ms=0,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                    )
                )
            self._written.notify_all()
        if on_settled is not None:
            for index in range(len(records)):
                on_settled(index, DELIVERED)

    async def close(self) -> None:
        return None

    def source(self, group: str, topics: Sequence[str]) -> "InMemorySource":
        return InMemorySource(self, group, topics)

    def records(self, topic: str) -> list[Record]:
        """Everything on a topic, partition by partition."""
        return [
            record
            for partition in sorted(self._logs)
            if partition.topic == topic
            for record in self._logs[partition]
        ]


class InMemorySource:
    """The one member of a group on an `InMemoryBus`."""

    def __init__(self, bus: InMemoryBus, group: str, topics: Sequence[str]) -> None:
        self._bus = bus
        self._group = group
        self._topics = topics
        self._positions: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._withheld: set[Partition] = set()

    async def start(self) -> None:
        for topic in self._topics:
            for number in range(self._bus._num_partitions):
                partition = Partition(topic, number)
                self._positions[partition] = self._bus._committed.get((self._group, partition), 0)

    async def stop(self) -> None:
        self._positions.clear()

    async def poll(
        self,
        timeout_seconds: float,
        partitions: Set[Partition] | None = None,
        max_records: int | None = None,
    ) -> Mapping[Partition, Sequence[Record]]:
        batches = self._take(partitions, max_records)
        if not batches:
            try:
                async with asyncio.timeout(timeout_seconds), self._bus._written:
                    await self._bus._written.wait()
            except TimeoutError:
                return {}
            batches = self._take(partitions, max_records)
        return batches

    def withhold(self, partition: Partition) -> None:
        self._withheld.add(partition)

    async def commit(self, offsets: Mapping[Partition, int]) -> bool:
        for partition, offset in offsets.items():
            if partition in self._positions:
                self._bus._committed[(self._group, partition)] = offset
        return offsets.keys() <= self._positions.keys()

    def seek(self, partition: Partition, offset: int) -> None:
        if partition in self._positions:
            self._positions[partition] = offset

    def pause(self, partition: Partition) -> None:
        self._paused.add(partition)

    def resume(self, partition: Partition) -> None:
        self._paused.discard(partition)

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._positions)

    async def position(self, partition: Partition) -> int | None:
        return self._positions.get(partition)

    async def end_offsets(self) -> Mapping[Partition, int]:
        return {item: len(self._bus._logs.get(item, ())) for item in self._positions}

    def _take(
        self, partitions: Set[Partition] | None, max_records: int | None
    ) -> dict[Partition, Sequence[Record]]:
        batches: dict[Partition, Sequence[Record]] = {}
        for partition in sorted(self._positions.keys() - self._paused):
            if partitions is not None and partition not in partitions:
                continue
            records = self._bus._logs.get(partition, [])[self._positions[partition] :][:max_records]
            if records and partition in self._withheld:
                self._withheld.discard(partition)
                records = [replace(records[0], key=None, headers=(), problem="withheld")]
            if records:
                batches[partition] = records
                self._positions[partition] += len(records)
        return batches


class InMemoryObjectStore:
    """Objects in a dictionary."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def put(self, key: str, content: bytes) -> None:
        self._objects[key] = content

    async def put_if_absent(self, key: str, content: bytes) -> bool:
        if key in self._objects:
            return False
        self._objects[key] = content
        return True

    async def get(self, key: str) -> bytes:
        if key not in self._objects:
            raise NoSuchObject(key)
        return self._objects[key]

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        return (await self.get(key))[start:end]

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        content = await self.get(key)
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        return [
            ObjectInfo(key, len(content))
            for key, content in sorted(self._objects.items())
            if key.startswith(prefix)
        ]

    async def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    async def list_uploads(self, prefix: str) -> Sequence[Upload]:
        return ()

    async def abort(self, upload: Upload) -> None:
        return None

    async def close(self) -> None:
        return None
