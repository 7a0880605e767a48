"""Streams that are taken in batches: what cannot be decoded is parked, and stops nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from drivetrain_schemas.topics import METRICS
from services.runtime.bus import OutRecord, Record
from services.runtime.consumer import Consumer, FailedAtRecord
from services.runtime.database import Database
from services.runtime.parking import InvalidRecord
from services.runtime.processing import BatchProcessor
from services.runtime.testing import InMemoryBus, InMemorySource, ManualClock
from services.runtime.transaction import Tx
from tests.conftest import OpenDatabase
from tests.events import parked
from tests.handlers.runtime.service import Bug, until

TOPIC = f"drivetrain.{METRICS.name}"


@dataclass
class Taker:
    """A service that keeps what it takes, and chokes on some of it."""

    database: Database
    service: str = "metrics"
    bus: InMemoryBus = field(default_factory=lambda: InMemoryBus(1))
    clock: ManualClock = field(default_factory=ManualClock)
    batches: list[list[bytes | None]] = field(default_factory=list)
    chokes: dict[bytes, Exception] = field(default_factory=dict)

    async def take(self, tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        self.batches.append([record.value for record in records])
        for record in records:
            if record.value in self.chokes:
                raise self.chokes[record.value]
        return ()

    async def read(self, *values: bytes) -> None:
        """Consume these, one record each, until all are done."""
        await self.bus.publish([OutRecord(TOPIC, None, value) for value in values])
        processor = BatchProcessor(self.service, "drivetrain.", {METRICS: self.take})
        source = self.bus.source("taker", [TOPIC])
        consumer = Consumer("taker", source, processor, self.database, self.clock)
        stopping = asyncio.Event()
        task = asyncio.create_task(consumer.run(stopping))
        done = len(self.bus.records(TOPIC))
        await until(lambda: task.done() or sum(self.bus._committed.values()) == done)
        stopping.set()
        await task


@pytest_asyncio.fixture
async def taker(database: OpenDatabase) -> Taker:
    return Taker(await database("cost"))


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), UnicodeDecodeError("utf-8", b"", 0, 1, "?")]
)
async def test_a_record_that_a_decoder_chokes_on_is_parked_and_the_others_are_taken(
    taker: Taker, error: Exception
) -> None:
    taker.chokes = {b"two": error}
    await taker.read(b"one", b"two", b"three")
    assert taker.batches == [[b"one", b"two", b"three"], [b"one"], [b"two"], [b"three"]]
    (facts,) = await parked(taker.database)
    assert (facts["reason"], facts["offset"]) == ("undecodable", "1")
    assert type(error).__name__ in facts["detail"]


async def test_a_bug_in_a_stream_ends_the_process_at_its_record(taker: Taker) -> None:
    taker.chokes = {b"two": Bug()}
    with pytest.raises(FailedAtRecord):
        await taker.read(b"one", b"two", b"three")
    assert taker.batches == [[b"one", b"two", b"three"], [b"one"], [b"two"]]
    assert sum(taker.bus._committed.values()) == 1
    assert await parked(taker.database) == []


@pytest.mark.parametrize(("service", "num_parked"), [("metrics", 1), ("gateway", 0)])
async def test_what_cannot_be_decoded_is_parked_by_one_service_and_given_to_none(
    taker: Taker, service: str, num_parked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = InMemorySource._take

    def damaged(source: InMemorySource, *limits: object) -> dict[object, list[Record]]:
        return {
            partition: [
                replace(it, problem="a wrong checksum") if it.value == b"two" else it
                for it in records
            ]
            for partition, records in take(source, *limits).items()  # type: ignore[arg-type]
        }

    monkeypatch.setattr(InMemorySource, "_take", damaged)
    taker.service = service
    await taker.read(b"one", b"two", b"three")
    assert taker.batches == [[b"one", b"three"]]
    found = await parked(taker.database)
    assert [facts["detail"] for facts in found] == ["a wrong checksum"] * num_parked
