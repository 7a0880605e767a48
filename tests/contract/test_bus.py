"""The contract of the bus, in memory and on a real Kafka: the writing port and the reading one."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from services.runtime.bus import (
    Outcome,
    OutRecord,
    Partition,
    Publisher,
    Record,
    RecordSource,
)
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource
from tests.fakes import InMemoryBus

NUM_PARTITIONS = 2
KEYS = [b"d", b"a", b"e", b"h"]


@dataclass
class Bus:
    """A topic of two partitions, what writes to it, and how to join a group that reads it."""

    topic: str
    publisher: Publisher
    make_source: Callable[[str], RecordSource]

    async def write(self, *values: bytes, key: bytes = b"d") -> None:
        await self.publisher.publish([OutRecord(self.topic, key, value) for value in values])

    @asynccontextmanager
    async def member(self, group: str) -> AsyncIterator[RecordSource]:
        """A member that owns every partition."""
        source = self.make_source(group)
        await source.start()
        try:
            async with asyncio.timeout(30):
                while len(source.assignment()) < NUM_PARTITIONS:
                    await source.poll(0.05)
            yield source
        finally:
            await source.stop()


@pytest.fixture(params=["memory", "kafka"])
def access(request: pytest.FixtureRequest) -> KafkaAccess | None:
    """None: in memory."""
    return request.getfixturevalue("kafka") if request.param == "kafka" else None


@pytest_asyncio.fixture
async def bus(access: KafkaAccess | None, topic_prefix: str) -> AsyncIterator[Bus]:
    topic = f"{topic_prefix}contract"
    async with AsyncExitStack() as stack:
        if access is None:
            memory = InMemoryBus(NUM_PARTITIONS)
            yield Bus(topic, memory, lambda group: memory.source(group, [topic]))
            return
        admin = AIOKafkaAdminClient(**access.options())
        await admin.start()
        await admin.create_topics([NewTopic(topic, NUM_PARTITIONS, 1)])
        await admin.close()
        publisher = KafkaPublisher(access, "contract")
        stack.push_async_callback(publisher.close)
        yield Bus(
            topic,
            publisher,
            lambda group: KafkaSource(
                access, group, [topic], member=f"{group}.0", max_records=1000
            ),
        )


@pytest.fixture
def group() -> str:
    return f"group-{secrets.token_hex(4)}"


async def read(source: RecordSource, at_least: int) -> list[Record]:
    """Polls until that many records are there."""
    records: list[Record] = []
    async with asyncio.timeout(30):
        while len(records) < at_least:
            for batch in (await source.poll(0.1)).values():
                records += batch
    return records


async def test_a_record_without_key_and_value_is_taken(bus: Bus, group: str) -> None:
    """What is too large to be parked leaves nothing but headers."""
    await bus.publisher.publish([OutRecord(bus.topic, None, None, (("x", b"1"), ("y", None)))])
    async with bus.member(group) as source:
        (record,) = await read(source, 1)
    assert not record.key
    assert not record.value
    assert record.headers == (("x", b"1"), ("y", None))


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


async def test_what_is_written_is_read_byte_by_byte(bus: Bus, group: str) -> None:
    headers = (("content-type", b"application/json"), ("ce_id", b"\xff\x00"), ("none", None))
    written = [
        OutRecord(bus.topic, b"\x00key", b"\xffvalue", headers),
        OutRecord(bus.topic, b"\x00key", None, ()),
        OutRecord(bus.topic, None, b"", ()),
    ]
    await bus.publisher.publish(written)
    async with bus.member(group) as source:
        records = await read(source, 3)
    got = {OutRecord(it.topic, it.key, it.value, it.headers) for it in records}
    assert got == set(written)


async def test_the_records_of_a_key_keep_their_order_and_their_partition(
    bus: Bus, group: str
) -> None:
    for number in range(5):
        await bus.publisher.publish([OutRecord(bus.topic, key, b"%d" % number) for key in KEYS])
    async with bus.member(group) as source:
        records = await read(source, 5 * len(KEYS))
    for key in KEYS:
        mine = [record for record in records if record.key == key]
        assert values(mine) == [b"%d" % number for number in range(5)]
        assert len({record.partition for record in mine}) == 1
    for number in range(NUM_PARTITIONS):
        offsets = [record.offset for record in records if record.partition == number]
        assert offsets == list(range(len(offsets)))


async def test_the_outcome_of_each_record_is_reported_once(bus: Bus) -> None:
    settled: list[tuple[int, Outcome]] = []
    records = [OutRecord(bus.topic, key, b"1") for key in KEYS]
    await bus.publisher.publish(
        records, lambda index, delivery: settled.append((index, delivery.outcome))
    )
    assert sorted(settled) == [(index, Outcome.ACKNOWLEDGED) for index in range(len(KEYS))]


async def test_calls_that_overlap_are_all_written(bus: Bus, group: str) -> None:
    calls = ([OutRecord(bus.topic, key, b"1")] * 10 for key in KEYS)
    await asyncio.gather(*(bus.publisher.publish(records) for records in calls))
    async with bus.member(group) as source:
        await read(source, 10 * len(KEYS))


async def test_nothing_to_read_is_an_empty_answer(bus: Bus, group: str) -> None:
    async with bus.member(group) as source:
        assert not await source.poll(0.05)


async def test_a_group_resumes_where_it_committed(bus: Bus, group: str) -> None:
    await bus.write(b"1", b"2", b"3")
    async with bus.member(group) as source:
        first, *_ = await read(source, 3)
        partition = Partition(first.topic, first.partition)
        assert await source.commit({partition: first.offset + 1}) is True
    async with bus.member(group) as source:
        assert values(await read(source, 2)) == [b"2", b"3"]


async def test_a_group_that_committed_nothing_begins_at_the_earliest(bus: Bus, group: str) -> None:
    await bus.write(b"1", b"2")
    for _ in range(2):
        async with bus.member(group) as source:
            assert values(await read(source, 2)) == [b"1", b"2"]


async def test_every_group_reads_everything(bus: Bus, group: str) -> None:
    await bus.write(b"1")
    for name in (group, f"{group}-other"):
        async with bus.member(name) as source:
            (record,) = await read(source, 1)
            await source.commit({Partition(record.topic, record.partition): 1})


async def test_a_seek_reads_again(bus: Bus, group: str) -> None:
    await bus.write(b"1", b"2", b"3")
    async with bus.member(group) as source:
        first, *_ = await read(source, 3)
        source.seek(Partition(first.topic, first.partition), first.offset + 1)
        assert values(await read(source, 2)) == [b"2", b"3"]


async def test_a_paused_partition_waits_while_the_others_continue(bus: Bus, group: str) -> None:
    async with bus.member(group) as source:
        await bus.publisher.publish([OutRecord(bus.topic, key, b"0") for key in KEYS])
        records = await read(source, len(KEYS))
        by_key = {it.key: Partition(it.topic, it.partition) for it in records}
        assert len(set(by_key.values())) == NUM_PARTITIONS
        paused = by_key[KEYS[0]]
        source.pause(paused)
        await bus.publisher.publish([OutRecord(bus.topic, key, b"1") for key in KEYS])
        others = [key for key in KEYS if by_key[key] != paused]
        assert sorted(it.key or b"" for it in await read(source, len(others))) == sorted(others)
        assert not await source.poll(0.05)
        source.resume(paused)
        rest = await read(source, len(KEYS) - len(others))
        assert {Partition(it.topic, it.partition) for it in rest} == {paused}


async def test_positions_and_ends_show_what_is_left(bus: Bus, group: str) -> None:
    async with bus.member(group) as source:
        await bus.write(b"1", b"2")
        first, *_ = await read(source, 2)
        partition = Partition(first.topic, first.partition)
        assert await source.position(partition) == 2
        await bus.write(b"3")
        ends = await source.end_offsets()
        assert set(ends) == {Partition(bus.topic, number) for number in range(NUM_PARTITIONS)}
        assert (ends[partition], sum(ends.values())) == (3, 3)


async def test_a_partition_of_somebody_else_is_left_alone(bus: Bus, group: str) -> None:
    foreign = Partition(bus.topic, 99)
    await bus.write(b"1")
    async with bus.member(group) as source:
        (record,) = await read(source, 1)
        mine = Partition(record.topic, record.partition)
        assert await source.commit({foreign: 5, mine: 1}) is False
        assert await source.position(foreign) is None
        source.seek(foreign, 5)
        source.pause(foreign)
        source.resume(foreign)
        assert foreign not in source.assignment()
        await bus.write(b"2")
        assert values(await read(source, 1)) == [b"2"]
    async with bus.member(group) as source:
        assert values(await read(source, 1)) == [b"2"]


async def test_a_member_that_left_owns_nothing(bus: Bus, group: str) -> None:
    async with bus.member(group) as source:
        assert source.assignment()
    assert source.assignment() == frozenset()
