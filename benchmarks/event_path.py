"""The cost of exactly-once effects: events through consume -> handle -> publish, one process.

Ours is a service of the runtime: releases are read, one row of state and one charge each are
written and emitted, by a handler that takes batches. Its peers do the same work (the same handler
and statement, the same encoding) in a bare loop of aiokafka and asyncpg with neither inbox nor
outbox, so that any crash loses or duplicates something: once with a transaction per event, once
with the same batches. Real Kafka, real Postgres, in turn. Every consumer has joined, its partitions
are paused and the records are on the topic before the clock starts; it stops with the last
acknowledgement.
"""

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.report import Row, options, publish
from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.topics import EVENTS_CHARGES
from services.cost.core.charges import charges
from services.cost.handlers import recorded, usages
from services.cost.price_file import read_price_book
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import logs
from services.runtime.bus import OutRecord, Record
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import PRODUCER_OPTIONS, KafkaPublisher
from services.runtime.kafka_source import CONSUMER_OPTIONS
from services.runtime.processing import MAX_EVENTS, read_event
from services.runtime.topics import create_topics
from services.runtime.transaction import Origin, Tx
from services.standalone.embedded import running_kafka, running_postgres
from tests.integration.runtime.cost import releases
from tests.platform_service import out_record, running, service_environment

TITLE = "Effects that happen once"
MEASURES = (
    "services/runtime/bus.py",
    "services/runtime/consumer.py",
    "services/runtime/database.py",
    "services/runtime/decoding.py",
    "services/runtime/flow.py",
    "services/runtime/kafka_publisher.py",
    "services/runtime/kafka_source.py",
    "services/runtime/outbox.py",
    "services/runtime/processing.py",
    "services/runtime/relay.py",
    "services/runtime/transaction.py",
)
NOTES = """
One process with one consumer of events, Kafka and Postgres of this machine; each event changes a
row and emits an event. The peers are a bare loop that does the same work without inbox and
outbox: after a crash they lose or repeat effects. Ours adds an inbox row and an outbox row per
event, which the relay reads, sends and deletes.
"""

BOOK = read_price_book(CostSettings.model_fields["price_book"].default)
TABLE = """
create table charged (
    allocation_id text primary key, job_id text not null, charge_id text not null,
    amount_micro_usd bigint not null)
"""
INSERT = """
insert into charged select * from unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
on conflict (allocation_id) do nothing
"""
TARGET_SINGLE = 3.0
TARGET_BATCHED = 0.8


def main() -> None:
    given = options("event_path", "Cost of effects that happen once")
    logs.configure("bench", "warning")
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    publish(asyncio.run(measure(given.quick)), given, ["aiokafka", "asyncpg"])


@dataclass(frozen=True, slots=True)
class Rates:
    """Events per second in one round."""

    ours: float
    single: float
    batched: float


async def charge(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """The handler of all three: one statement for the state, one event for each."""
    facts = [recorded(it.payload, charges(usages(it.payload)[0], BOOK)[0]) for it in events]
    await tx.connection.execute(
        INSERT,
        [fact.allocation_id for fact in facts],
        [fact.job_id for fact in facts],
        [fact.charge_id for fact in facts],
        [fact.amount_micro_usd for fact in facts],
    )
    for event, fact in zip(events, facts, strict=True):
        await tx.emit(fact, tenant_id=event.tenant_id, cause=event)


async def charge_one(tx: Tx, event: Event[AllocationReleased]) -> None:
    await charge(tx, [event])


async def measure(quick: bool) -> list[Row]:
    num_rounds, num_events = (1, 500) if quick else (5, 10_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            running_postgres(folder / "postgres") as postgres,
            running_kafka(folder / "kafka") as broker,
        ):
            access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
            rounds = [
                await one_round(access, postgres.dsn, number, num_events)
                for number in range(num_rounds)
            ]
    ours = statistics.median(rates.ours for rates in rounds)
    single = statistics.median(rates.single for rates in rounds)
    batched = statistics.median(rates.batched for rates in rounds)
    return [
        row("without, one transaction each", ours, single, TARGET_SINGLE),
        row("without, the same batches", ours, batched, TARGET_BATCHED),
    ]


def row(peer: str, ours: float, theirs: float, target: float) -> Row:
    ratio = ours / theirs
    return Row(
        id="event_path",
        what="events through consume, handle, publish with inbox and outbox, one process",
        ours=f"{ours:,.0f}/s",
        peer=f"{theirs:,.0f}/s ({peer})",
        ratio=ratio,
        target=f"at least {target:g} x",
        met=ratio >= target,
    )


async def one_round(access: KafkaAccess, dsn: str, number: int, num_events: int) -> Rates:
    """The same number of events through each, in turn, each on topics of its own."""
    return Rates(
        ours=await ours(access, dsn, f"ours{number}.", num_events),
        single=await bare(access, dsn, f"single{number}.", num_events, 1),
        batched=await bare(access, dsn, f"batched{number}.", num_events, MAX_EVENTS),
    )


async def produce(access: KafkaAccess, prefix: str, num_events: int) -> None:
    publisher = KafkaPublisher(access, "bench")
    records = [out_record(event, prefix) for event in releases(num_events)]
    for start in range(0, num_events, 500):
        await publisher.publish(records[start : start + 500])
    await publisher.close()


async def ours(access: KafkaAccess, dsn: str, prefix: str, num_events: int) -> float:
    connection = await asyncpg.connect(dsn)
    await connection.execute("drop schema if exists cost cascade")
    await connection.close()
    await create_topics(access, prefix)
    service = replace(
        build(CostSettings(**service_environment(access, dsn, prefix))),
        handlers={AllocationReleased: charge_one},
        handle_batch=charge,
        streams={},
        http=None,
    )
    async with running(service) as process:
        async with process.platform.database.connection() as connection:
            await connection.execute(TABLE)
        (consumer,) = process.platform.consumers
        partitions = consumer.source.assignment()
        for partition in partitions:
            consumer.source.pause(partition)
        await produce(access, prefix, num_events)
        began = time.perf_counter()
        for partition in partitions:
            consumer.source.resume(partition)
        await until_written(access, prefix + EVENTS_CHARGES.name, num_events)
        return num_events / (time.perf_counter() - began)


async def until_written(access: KafkaAccess, topic: str, num_events: int) -> None:
    """Each event has its charge on the topic, and none has two."""
    watcher = AIOKafkaConsumer(topic, **access.options(), **CONSUMER_OPTIONS)
    await watcher.start()
    watcher.pause(*watcher.assignment())
    try:
        num_written = 0
        while num_written < num_events:
            await asyncio.sleep(0.05)
            num_written = sum((await watcher.end_offsets(watcher.assignment())).values())
        assert num_written == num_events
    finally:
        await watcher.stop()


async def bare(
    access: KafkaAccess, dsn: str, prefix: str, num_events: int, max_batch: int
) -> float:
    await create_topics(access, prefix)
    async with plain_tables(dsn) as connection, clients(access, prefix) as (consumer, producer):
        consumer.pause(*consumer.assignment())
        await produce(access, prefix, num_events)
        began = time.perf_counter()
        consumer.resume(*consumer.assignment())
        num_done = 0
        while num_done < num_events:
            acks: list[asyncio.Future[Any]] = []
            for partition, items in (await consumer.getmany(timeout_ms=200)).items():
                for start in range(0, len(items), max_batch):
                    records = [record_of(partition, it) for it in items[start : start + max_batch]]
                    acks += [
                        await producer.send(it.topic, it.value, it.key, headers=list(it.headers))
                        for it in await handle(connection, prefix, records)
                    ]
            if acks:
                await asyncio.gather(*acks)
                await consumer.commit()
                num_done += len(acks)
        return num_events / (time.perf_counter() - began)


def record_of(partition: TopicPartition, item: Any) -> Record:
    place = (partition.topic, partition.partition, item.offset, 0)
    return Record(*place, item.key, item.value, tuple(item.headers))


async def handle(
    connection: asyncpg.Connection, prefix: str, records: Sequence[Record]
) -> list[OutRecord]:
    """One transaction; returns what is to be sent."""
    tx = Tx(connection, Origin("/drivetrain/cost", prefix))
    async with connection.transaction():
        await charge(tx, [read_event(record) for record in records])
    tx.run_callbacks()
    return [emitted.record for emitted in tx._emitted]


@asynccontextmanager
async def plain_tables(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """The table of the state, empty, in a schema of its own."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "plain"})
    try:
        await connection.execute("drop schema if exists plain cascade")
        await connection.execute("create schema plain")
        await connection.execute(TABLE)
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def clients(
    access: KafkaAccess, prefix: str
) -> AsyncIterator[tuple[AIOKafkaConsumer, AIOKafkaProducer]]:
    consumer = AIOKafkaConsumer(
        f"{prefix}events.jobs",
        group_id=f"{prefix}bare",
        max_poll_records=MAX_EVENTS,
        **access.options(),
        **CONSUMER_OPTIONS,
    )
    producer = AIOKafkaProducer(**access.options(), **PRODUCER_OPTIONS)
    async with consumer, producer:
        while not consumer.assignment():
            await asyncio.sleep(0.05)
        yield consumer, producer


if __name__ == "__main__":
    main()
