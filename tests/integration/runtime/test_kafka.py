"""Guards round aiokafka that only a real broker can provoke."""

import asyncio
import secrets
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.producer import message_accumulator

from services.runtime import kafka_source
from services.runtime.bus import OutRecord, PublishFailed, Record
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import BACKLOG_FETCH_WAIT_MS, IDLE_FETCH_WAIT_MS, KafkaSource
from services.runtime.topics import create_topics
from tests.batches import NotUtf8
from tests.platform_service import read_topic

TOPIC = "events.jobs"


@pytest.fixture
async def topic(kafka: KafkaAccess, topic_prefix: str) -> str:
    await create_topics(kafka, topic_prefix)
    return topic_prefix + TOPIC


def source(kafka: KafkaAccess, topic: str, group: str, member: str) -> KafkaSource:
    return KafkaSource(kafka, group, [topic], member=member, max_records=100)


async def until_it_owns(member: KafkaSource, num_partitions: int) -> None:
    async with asyncio.timeout(30):
        while len(member.assignment()) != num_partitions:
            await member.poll(0.05)


async def test_a_restarted_member_takes_its_partitions_back_at_once(
    kafka: KafkaAccess, topic: str
) -> None:
    """Static membership: under another name it would share with the dead one for 30 s."""
    group = f"g-{secrets.token_hex(4)}"
    dead, restarted = (source(kafka, topic, group, "cost.0") for _ in range(2))
    await dead.start()
    try:
        await until_it_owns(dead, 4)
        await restarted.start()
        try:
            await until_it_owns(restarted, 4)
        finally:
            await restarted.stop()
    finally:
        await dead.stop()


async def test_two_members_share_the_partitions(kafka: KafkaAccess, topic: str) -> None:
    group = f"g-{secrets.token_hex(4)}"
    one, other = (source(kafka, topic, group, f"cost.{number}") for number in range(2))
    await one.start()
    try:
        starting = asyncio.create_task(other.start())
        async with asyncio.timeout(30):
            while not starting.done():
                await one.poll(0.05)
        await asyncio.gather(until_it_owns(one, 2), until_it_owns(other, 2))
        assert not one.assignment() & other.assignment()
    finally:
        await asyncio.gather(one.stop(), other.stop())


async def test_a_producer_out_of_sequence_is_replaced(kafka: KafkaAccess, topic: str) -> None:
    """The broker refuses every further record of such a producer, for ever."""
    publisher = KafkaPublisher(kafka, "tests")
    try:
        await publisher.publish([OutRecord(topic, b"k", b"0")])
        producer = publisher._current.producer
        for number in range(4):
            producer._txn_manager.increment_sequence_number(TopicPartition(topic, number), 500)
        with pytest.raises(PublishFailed):
            await publisher.publish([OutRecord(topic, b"k", b"1")])
        await publisher.publish([OutRecord(topic, b"k", b"1")])
        assert publisher._current.producer is not producer
    finally:
        await publisher.close()
    assert [record.value for record in await read_topic(kafka, topic, at_least=2)] == [b"0", b"1"]


async def read_five(kafka: KafkaAccess, topic: str) -> list[Record]:
    """Five records through a group of their own, which commits as it goes."""
    reader = source(kafka, topic, f"g-{secrets.token_hex(4)}", "cost.0")
    await reader.start()
    found: list[Record] = []
    try:
        async with asyncio.timeout(60):
            while len(found) < 5:
                for partition, batch in (await reader.poll(0.2)).items():
                    found += batch
                    await reader.commit({partition: batch[-1].offset + 1})
    finally:
        await reader.stop()
    return found


async def test_a_header_name_that_is_no_text_costs_its_neighbours_nothing(
    kafka: KafkaAccess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker gives the whole batch whatever offset is asked for."""
    monkeypatch.setattr(message_accumulator, "DefaultRecordBatchBuilder", NotUtf8)
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish(
        [
            OutRecord(topic, b"k", b"%d" % number, (("bad" if number == 1 else "good", b"1"),))
            for number in range(5)
        ]
    )
    await publisher.close()
    found = await read_five(kafka, topic)
    assert [(it.offset, it.key, it.value) for it in found] == [
        (number, b"k", b"%d" % number) for number in range(5)
    ]
    assert found[1].headers == (("\ufffd\ufffd\ufffd", b"1"),)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_what_other_clients_compress_is_read(
    kafka: KafkaAccess, topic: str, codec: str
) -> None:
    producer = AIOKafkaProducer(**kafka.options(), compression_type=codec, linger_ms=50)
    async with producer:
        sent = [await producer.send(topic, b"%d" % it * 200, key=b"k") for it in range(5)]
        await asyncio.gather(*sent)
    found = await read_five(kafka, topic)
    assert [it.value for it in found] == [b"%d" % number * 200 for number in range(5)]


async def test_an_idle_consumer_fetches_rarely_and_reads_a_backlog_without_delay(
    kafka: KafkaAccess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty fetch costs a consumer and the broker as much as a full one."""
    waits: list[int] = []
    build = fetcher.FetchRequest

    def request(max_wait_ms: int, *rest: Any, **named: Any) -> Any:
        waits.append(max_wait_ms)
        return build(max_wait_ms, *rest, **named)

    async def fetched(wait_ms: int) -> None:
        async with asyncio.timeout(30):
            while wait_ms not in waits:
                await asyncio.sleep(0.01)
        waits.clear()

    async def polled(max_records: int | None = None) -> list[bytes | None]:
        """The values of the next records; the poll lasts longer than an idle fetch."""
        waits.clear()
        polled = await reader.poll(20.0, max_records=max_records)
        return [it.value for batch in polled.values() for it in batch]

    monkeypatch.setattr(fetcher, "FetchRequest", request)
    monkeypatch.setattr(kafka_source, "IDLE_AFTER_SECONDS", 0.5)
    monkeypatch.setattr(kafka_source, "FETCH_WAIT_MS", 150)
    publisher = KafkaPublisher(kafka, "tests")
    reader = source(kafka, topic, f"g-{secrets.token_hex(4)}", "cost.0")
    await reader.start()
    try:
        await until_it_owns(reader, 4)
        async with asyncio.timeout(30):
            while IDLE_FETCH_WAIT_MS not in waits:
                await reader.poll(0.05)
        await publisher.publish([OutRecord(topic, b"k", b"1")])
        assert await polled() == [b"1"]
        await fetched(150)
        await publisher.publish([OutRecord(topic, b"k", value) for value in (b"2", b"3")])
        assert await polled(max_records=1) == [b"2"]  # a full poll: there may be more
        await fetched(BACKLOG_FETCH_WAIT_MS)
    finally:
        await asyncio.gather(reader.stop(), publisher.close())


async def test_a_wrong_password_is_waited_out(kafka: KafkaAccess, topic: str) -> None:
    stranger = KafkaPublisher(KafkaAccess(kafka.bootstrap_servers, "drivetrain", "wrong"), "tests")
    with pytest.raises(PublishFailed):
        await stranger.publish([OutRecord(topic, b"k", b"0")])
    await stranger.close()
