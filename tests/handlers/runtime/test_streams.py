"""Streams that are taken in batches: what cannot be decoded is parked, and stops nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from drivetrain_schemas.topics import METRICS
from services.runtime import parking
from services.runtime.bus import OutRecord, Record
from services.runtime.consumer import Consumer, FailedAtRecord
from services.runtime.database import Database
from services.runtime.instruments import PARKED_DROPPED
from services.runtime.parking import DROPPED, InvalidRecord
from services.runtime.processing import BatchProcessor
from services.runtime.transaction import Tx
from tests.conftest import OpenDatabase
from tests.events import parked
from tests.fakes import InMemoryBus, InMemorySource, ManualClock
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


async def test_of_a_flood_a_day_parks_so_many_and_tells_how_many_it_dropped(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_RECORDS_A_DAY", 3)

    async def reject(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        return [InvalidRecord(record, "garbage", "") for record in records]

    monkeypatch.setattr(taker, "take", reject)
    dropped = PARKED_DROPPED.labels(TOPIC)._value
    before = dropped.get()
    await taker.read(*(b"junk" for _ in range(9)))
    found = await parked(taker.database)
    assert [facts["offset"] for facts in found if facts["reason"] == "garbage"] == ["0", "1", "2"]
    told = [facts for facts in found if facts["reason"] == DROPPED]
    assert [facts["offset"] for facts in told] == ["3", "4", "6"]
    assert f"3 records of {TOPIC} were parked" in told[-1]["detail"]
    assert "4 more were dropped" in told[-1]["detail"]
    assert all(facts["omitted"] for facts in told)
    assert dropped.get() - before == 6
    async with taker.database.connection() as connection:
        await connection.execute("update parked_days set day = day - 1")
    await taker.read(b"junk")
    assert len(await parked(taker.database)) == len(found) + 1, "the next day parks again"
