"""Batches that end the process while they are fetched or decoded, before any record is known."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from services.runtime.bus import Partition, Record
from services.runtime.consumer import Consumer
from services.runtime.errors import PostgresUnavailable
from tests.conftest import OpenDatabase
from tests.events import parked
from tests.fakes import InMemorySource
from tests.handlers.runtime.service import TOPIC, Adder, Killed, make_adder, say, until


@pytest_asyncio.fixture
async def adder(database: OpenDatabase) -> Adder:
    return await make_adder(await database("cost"), num_partitions=3)


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> set[tuple[Partition, int]]:
    """Records that end the process as they are read, and not while they are withheld."""
    records: set[tuple[Partition, int]] = set()
    take = InMemorySource._take

    def take_or_die(
        source: InMemorySource, partitions: Set[Partition] | None, max_records: int | None
    ) -> Mapping[Partition, Sequence[Record]]:
        taken = take(source, partitions, max_records)
        for partition, batch in taken.items():
            for record in batch:
                if (partition, record.offset) in records and record.problem is None:
                    raise Killed
        return taken

    monkeypatch.setattr(InMemorySource, "_take", take_or_die)
    return records


def partition_of(adder: Adder, tenant_id: str) -> Partition:
    found = {it.partition for it in adder.bus.records(TOPIC) if it.key == tenant_id.encode()}
    return Partition(TOPIC, found.pop())


@pytest.mark.parametrize("place", [0, 3])
async def test_a_batch_that_kills_its_reader_is_parked_undecoded_and_alone(
    adder: Adder, deadly: set[tuple[Partition, int]], place: int
) -> None:
    """Also behind others that one poll takes with it."""
    for tenant_id, amount in (("a", 1), ("d", 11), ("b", 21)):
        await say(adder.bus, *range(amount, amount + 5), tenant_id=tenant_id)
    assert len({partition_of(adder, tenant_id) for tenant_id in "adb"}) > 1
    first = next(it for it in adder.bus.records(TOPIC) if it.key == b"a")
    deadly.add((partition_of(adder, "a"), first.offset + place))
    for _ in range(3):
        await adder.crash(Killed)
        assert await parked(adder.database) == []
    async with adder.running():
        await until(lambda: sum(adder.committed().values()) == 15)
    (facts,) = await parked(adder.database)
    assert facts["reason"] == "crash_loop"
    assert (int(facts["partition"]), int(facts["offset"])) == (
        first.partition,
        first.offset + place,
    )
    want = {*range(1, 6), *range(11, 16), *range(21, 26)} - {1 + place}
    assert set(await adder.heard()) == want


@pytest_asyncio.fixture
async def withheld(
    database: OpenDatabase, deadly: set[tuple[Partition, int]], monkeypatch: pytest.MonkeyPatch
) -> Adder:
    """Its next start parks three records as one batch, which comes at its last offset, 2."""
    adder = await make_adder(await database("cost"))
    await say(adder.bus, 1, 2, 3)
    deadly.add((Partition(TOPIC, 0), 0))
    for _ in range(3):
        await adder.crash(Killed)
    take = InMemorySource._take

    def take_whole(source: InMemorySource, *options: Any) -> Mapping[Partition, Sequence[Record]]:
        taken = take(source, *options)
        for partition, (first, *_) in taken.items():
            if first.problem is not None:
                source.seek(partition, 3)
                return {partition: [replace(first, offset=2)]}
        return taken

    monkeypatch.setattr(InMemorySource, "_take", take_whole)
    return adder


async def test_a_batch_that_cannot_be_parked_yet_is_neither_read_nor_passed_over(
    withheld: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = []
    park = Consumer._park_deadly

    async def fail_once(consumer: Consumer, partition: Partition, record: Record) -> None:
        failures.append(record.offset)
        if len(failures) == 1:
            raise PostgresUnavailable("no connection")
        await park(consumer, partition, record)

    monkeypatch.setattr(Consumer, "_park_deadly", fail_once)
    async with withheld.running() as task:
        await until(lambda: task.done() or sum(withheld.committed().values()) == 3, withheld.clock)
        assert not task.done()
    (facts,) = await parked(withheld.database)
    assert (facts["reason"], facts["offset"], failures) == ("crash_loop", "2", [2, 2])


async def test_a_stop_before_a_batch_is_parked_passes_nothing_over(
    withheld: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_parking = asyncio.Event()

    async def hang(consumer: Consumer, partition: Partition, record: Record) -> None:
        is_parking.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Consumer, "_park_deadly", hang)
    async with asyncio.timeout(20), withheld.running():
        await is_parking.wait()
    assert sum(withheld.committed().values()) == 0


async def test_what_waits_beside_a_deadly_batch_is_never_blamed(
    adder: Adder, deadly: set[tuple[Partition, int]]
) -> None:
    """Every start that ends counts for every partition with records to read."""
    await say(adder.bus, 1, 2, tenant_id="a")
    await say(adder.bus, 3, 4, tenant_id="d")
    deadly.add((partition_of(adder, "a"), 0))
    deadly.add((partition_of(adder, "a"), 1))
    num_ends = 0
    while sum(adder.committed().values()) < 4:
        async with adder.running() as task:
            await until(lambda task=task: task.done() or sum(adder.committed().values()) == 4)
            num_ends += task.done()
        assert num_ends <= 6
    assert num_ends == 6
    assert sorted(await adder.heard()) == [3, 4]
    assert {facts["partition"] for facts in await parked(adder.database)} == {
        str(partition_of(adder, "a").number)
    }


async def test_restarts_without_anything_to_read_are_not_counted(adder: Adder) -> None:
    await say(adder.bus, 1, tenant_id="a")
    async with adder.running():
        await until(lambda: sum(adder.committed().values()) == 1)
    for _ in range(5):
        async with adder.running():
            await say(adder.bus, tenant_id="a")
    async with adder.database.connection() as connection:
        rows: list[Any] = await connection.fetch("select * from crash_watch")
    assert rows == []
